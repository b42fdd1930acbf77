#!/usr/bin/env bash
# Every figure and check of training on a GPU host, with or without network: speed beside a plain loop, the ablation
# of SD 1, what only a GPU can show.
#
#   scripts/offline-bundle                             # once, where there is a network, if the host has none
#   benchmarks/training.sh benchmarks/DATE-training    # there; PYTHON names another interpreter that has torch
#
# Asked again for the same folder it goes on with what is not there. LIMIT_S=500 has it end after about so many seconds;
# MICRO_BATCH is SD 2-base's, ALSO="optimizer.one_pass=true ..." are more settings of ours. Goes on with the next when
# one fails, and ends with 1 then.
set -uo pipefail
out=$(realpath -m "${1:?say a folder for the results}")
rows=(benchmarks/training.py --out "$out" --fill --micro-batch "${MICRO_BATCH:-96}" ${ALSO:+--also $ALSO})
. "$(dirname "$0")/host.sh"
run "${rows[@]}" --only ours-in-loop plain-compile-in-loop ours-sdxl-precomputed
run -m calotype train table sd1-ablation --out "$out/sd1-ablation" --row-limit-s 280
[ -f "$out/checks.json" ] || run -m tests.gpu.training --out "$out/checks.json"
run -m tests.unit.train.checkpoint.gpu_check
run "${rows[@]}"
exit $failed

#!/usr/bin/env bash
# Every figure and check of training on a GPU host, with or without network: speed beside a plain loop, the ablation
# of SD 1, what only a GPU can show.
#
#   scripts/offline-bundle                             # once, where there is a network, if the host has none
#   benchmarks/training.sh benchmarks/DATE-training    # there; PYTHON names another interpreter that has torch
#
# Asked again for the same folder it goes on with what is not there. LIMIT_S=500 has it end after about so many
# seconds. Goes on with the next when one fails, and ends with 1 then.
set -uo pipefail
out=$(realpath -m "${1:?say a folder for the results}")
micro=${MICRO_BATCH:-96}
. "$(dirname "$0")/host.sh"
run benchmarks/training.py --out "$out" --fill --micro-batch "$micro" \
  --only ours-in-loop plain-compile-in-loop ours-sdxl-precomputed
run -m calotype train table sd1-ablation --out "$out/sd1-ablation" --row-limit-s 280
[ -f "$out/checks.json" ] || run -m tests.gpu.training --out "$out/checks.json"
run -m tests.unit.train_checkpoint.gpu_check
run benchmarks/training.py --out "$out" --fill --micro-batch "$micro"
exit $failed

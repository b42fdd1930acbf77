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
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
if [ -d build/wheels ] && [ ! -d build/offline ]; then
  for wheel in build/wheels/*.whl; do "$python" -m zipfile -e "$wheel" build/offline; done
fi
export PYTHONPATH=$PWD/src:$PWD/build/offline:$PWD
mkdir -p "$out"
failed=0
run() {
  local left=$((${LIMIT_S:-1000000} - SECONDS))
  echo "== $SECONDS s: $*"
  [ "$left" -gt 10 ] || { failed=1; return; }
  timeout --kill-after=20 "$left" "$python" "$@" || failed=1
}
run benchmarks/training.py --out "$out" --fill --micro-batch "$micro" \
  --only ours-in-loop plain-compile-in-loop ours-sdxl-precomputed
run -m calotype train table sd1-ablation --out "$out/sd1-ablation" --row-limit-s 280
[ -f "$out/checks.json" ] || run -m tests.gpu.training --out "$out/checks.json"
run -m tests.unit.train_checkpoint.gpu_check
run benchmarks/training.py --out "$out" --fill --micro-batch "$micro"
exit $failed

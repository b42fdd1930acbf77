#!/usr/bin/env bash
# Every figure and check of the engine on a GPU host, with or without network: kernels, presets, a start, memory, speed.
#
#   scripts/offline-bundle                         # once, where there is a network, if the host has none
#   benchmarks/engine.sh benchmarks/DATE-engine    # there; PYTHON names another interpreter that has torch
#
# Goes on with the next when one fails, and ends with 1 then. Asked again for the same folder, the figures of memory
# and speed that are there are kept.
set -uo pipefail
out=$(realpath -m "${1:?say a folder for the results}")
. "$(dirname "$0")/host.sh"
run -m tests.gpu.kernels --out "$out/kernels.json"
run -m tests.gpu.engine --out "$out/engine-checks.json"
run -m tests.gpu.start --out "$out/start.json"
run benchmarks/memory.py --out "$out/memory"
run benchmarks/inference.py --out "$out"
run benchmarks/by_pass.py --out "$out/by-pass"
run benchmarks/compiled_blocks.py --out "$out/compiled-blocks"
exit $failed

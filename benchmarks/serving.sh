#!/usr/bin/env bash
# A deployment under load on a GPU host, with or without network: alone, saturated beside the same engine offline, by one and
# two clients that wait for their answers, and at a half and a quarter of that load.
#
#   scripts/offline-bundle                           # once, where there is a network, if the host has none
#   benchmarks/serving.sh benchmarks/DATE-serving    # there; PYTHON names another interpreter that has torch
set -euo pipefail
out=$(realpath -m "${1:?say a folder for the results}")
. "$(dirname "$0")/host.sh"
exec "$python" -m calotype bench serve random:sd15 --steps 20 --clients 64 --duration 45 --warmup 20 --solo 30 \
  --few 1 --few 2 --share 0.5 --share 0.25 --interface grpc --offline --batches 16 --out "$out"

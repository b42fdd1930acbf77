#!/usr/bin/env bash
# The published tables of SDXL's speed and of a training's ablation, measured on a GPU host with or without network, the
# device's own ceilings beside them, and a report of all.
#
#   scripts/offline-bundle                               # once, where there is a network, if the host has none
#   benchmarks/measuring.sh benchmarks/DATE-measuring    # there; PYTHON names another interpreter that has torch
#
# Asked again for the same folder it goes on with what is not there; ABLATION names a folder that has the ablation
# already (benchmarks/training.sh makes one). LIMIT_S=500 has it end after about so many seconds; Calotype's own commands
# then stop between points. Goes on with the next when one fails, and ends with 1 then.
set -uo pipefail
out=$(realpath -m "${1:?say a folder for the results}")
. "$(dirname "$0")/host.sh"
out=$(realpath -m --relative-to=. "$out") # what is written names no folder of this machine
ablation=${ABLATION:-$out/sd1-ablation}
mkdir -p "$out/ceiling"
# Shares of the ceiling are told from what this machine remembers, which another time may be another machine.
if [ -f "$out/ceiling/records.jsonl" ]; then run -m calotype bench ceiling
else run -m calotype bench ceiling --again --out "$out/ceiling/records.jsonl"; fi
run -m calotype bench inference sdxl-batch sdxl-resolution sdxl-steps sdxl-cfg --keep-loaded --rounds 2 --units 3 --warmup 2 --out "$out/sdxl"
# The same steps and guidance on a model that has learned something, for pictures to look at.
apple="a red apple, noto style, on a light blue background"
run -m calotype bench inference --model emoji --prompt "$apple" --rounds 1 --keep-loaded --out "$out/emoji-steps" \
  --sweep preset=fast cfg=4 steps=1,2,4,8,16,32,64
run -m calotype bench inference --model emoji --prompt "$apple" --rounds 1 --keep-loaded --out "$out/emoji-cfg" \
  --sweep preset=fast steps=20 cfg=1,2,4,8,12
[ -n "${ABLATION:-}" ] || run -m calotype train table sd1-ablation --out "$ablation" --row-limit-s 280
[ -f "$out/profile/profile.json" ] || run -m calotype profile generate random:sdxl "a lighthouse" --preset fast --steps 4 --out "$out/profile"
runs=() # what there is by now: what could not be begun is no reason to have no report
for folder in "$out/ceiling" "$out/sdxl" "$out/emoji-steps" "$out/emoji-cfg" "$ablation"; do
  [ ! -f "$folder/records.jsonl" ] || runs+=("$folder")
done
run -m calotype report "${runs[@]}" --out "$out/report" --title "SDXL and the training of SD 1, beside published tables"
exit $failed

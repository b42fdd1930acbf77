#!/bin/bash
# calotype train emoji trainer.devices=2
# on this machine. Does not need Calotype's launcher; start it with: bash job.sh
set -e
folder=/home/ada/launches/here
mkdir -p "$folder/logs"
# On any exit: the lines before the command may fail too.
trap 'echo "$?" > "$folder/exit-code"' EXIT
cd /home/ada
export PET_SHUTDOWN_TIMEOUT=120
export TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE='[rank${rank}]: '
export PYTHONUNBUFFERED=1

# On SIGTERM the processes save; this script waits for them.
trap 'kill -TERM "$running" 2>/dev/null || true' TERM

began=$SECONDS
timeout --signal=TERM --kill-after=135 43200 /home/ada/.venv/bin/python -m torch.distributed.run \
  --nnodes=1 --nproc-per-node=2 --max-restarts=0 --rdzv-backend=c10d --rdzv-endpoint="localhost:0" \
  --rdzv-id="here" --tee=3 \
  -m calotype train emoji trainer.devices=2 \
  >> "$folder/logs/node-0.log" 2>&1 &
running=$!
# A signal interrupts `wait` before the process has ended.
while kill -0 "$running" 2>/dev/null; do
  wait "$running" || true
done
code=0
wait "$running" || code=$?
# A process that had to be killed after the time limit exits with 137 as well.
if [ "$code" = 137 ] && [ $((SECONDS - began)) -ge 43200 ]; then code=124; fi
exit "$code"

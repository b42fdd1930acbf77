#!/bin/bash
# calotype bench train --sweep=batch=1,2,4 --out=/fsx/out '--part={task}/3'
# on this machine. Does not need Calotype's launcher; start it with: bash job.sh
set -e
folder=/fsx/launches/sweep
mkdir -p "$folder/logs"
# On any exit: the lines before the command may fail too.
trap 'echo "$?" > "$folder/exit-code"' EXIT
export PYTHONUNBUFFERED=1

# On SIGTERM the processes save; this script waits for them.
trap 'stopped=yes; kill -TERM "$running" 2>/dev/null || true' TERM

stopped=
for task in {0..2}; do
  timeout --signal=TERM --kill-after=120 0 /fsx/calotype/bin/python -m calotype bench train \
    --sweep=batch=1,2,4 --out=/fsx/out --part="$task"/3 \
    >> "$folder/logs/task-$task-node-0.log" 2>&1 &
  running=$!
  # A signal interrupts `wait` before the process has ended.
  while kill -0 "$running" 2>/dev/null; do
    wait "$running" || true
  done
  code=0
  wait "$running" || code=$?
  [ -z "$stopped" ] || break
  echo "$code" > "$folder/exit-code.$task"
done

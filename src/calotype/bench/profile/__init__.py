"""Where a job's time goes: the device's kernels in groups, what the host keeps it waiting for, and a trace.

Reading order: `intervals` (stretches of time); `trace` (what torch's profiler wrote); `kinds`, `device_kinds`
and `host_kinds` (what a kernel's name says of it); `summary`, `waiting` and `analysis` (what a trace amounts
to); `plan`, `stages` and `window` (running something under the profiler); `generating` and `training` (two
jobs), `reading` (a trace from elsewhere); `nsight` and `report` (what is shown).
"""

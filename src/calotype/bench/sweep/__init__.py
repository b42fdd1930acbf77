"""Runs sweeps: many points, each measured in its own process, round after round.

Reading order: `axes` and `points` (input); `timing` and `device_clocks` (time); `worker_process` (the process
of a point) and `partial_record` (its record); `subprocess_runner` and `runner` (all points, resumable);
`ratios` and `table` (output). The work of a point is in `bench/inference` and `bench/training`.
"""

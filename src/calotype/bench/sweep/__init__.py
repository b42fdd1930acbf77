"""Sweeps: many points, each measured in a process of its own, round after round.

Reading order: `axes` and `points` (what people write); `timing` and `devices` (the clock); `child` (the
process of a point) and `notebook` (what it notes); `runner` (all points, resumable); `ratios` and `table`
(what is shown). What a point does is in `bench/inference` and `bench/training`; servers would stand beside.
"""

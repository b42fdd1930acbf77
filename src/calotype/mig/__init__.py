"""Partitions GPUs into MIG slices: plans, checks, applies, persists and restores layouts.

Reading order: `profiles` and `layout` define layouts and their rules; `enumerate` and `planner` search them;
`driver` is the interface to a GPU, implemented by `nvml_driver`, `smi_driver` and `simulation/`; `diff` and
`apply` change a layout safely; `layout_file`, `mig_parted` and `persist` store it.
"""

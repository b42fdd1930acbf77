"""Cuts GPUs into slices (MIG): plan, check, apply, persist, and put back.

Reading order: `profiles` and `layout` say what can be; `fitting` and `planner` find it; `driver` is what
can be asked of a GPU, done by `nvml_driver`, `smi_driver` and `simulation/`; `steps` and `apply` change one
without fear; `layout_file`, `parted` and `persist` keep it. Knows nothing of torch, engines or servers.
"""

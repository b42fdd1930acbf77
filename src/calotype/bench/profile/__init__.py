"""Profiles a job: time by kernel group, time the device waits for the host, and a trace.

Reading order: `intervals`; `chrome_trace` (output of torch's profiler); `classify`, `gpu_kernel_patterns` and
`cpu_op_patterns` (kernel names); `summary`, `launch_bound` and `analyze` (evaluation of a trace); `options`,
`annotations` and `torch_profiler` (running under the profiler); `capture_generate` and `capture_train` (two
jobs), `load_trace` (existing traces); `nsight` and `report` (output).
"""

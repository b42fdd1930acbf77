"""Reads and writes weight files safely: bytes, headers, dtypes, tensors.

Reading order: `sniff`, `safe_open`, `safetensors_layout`, `safetensors_header`, `base`, `safetensors_reader`,
`safetensors_writer`; `pickle_child` (the sandboxed process that reads old pickles), `pickle_sandbox` (which
starts it), `open` (which caches the converted file); then `sharded` and `finite_check`.
"""

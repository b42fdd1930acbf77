"""Weight files in and out: bytes, headers, dtypes, tensors. Knows nothing of Stable Diffusion.

In reading order: `kinds`, `opened`, `tensor_layout`, `safetensors_header`, `tensor_reader`, `tensor_file`,
`safetensors_writer`; `pickle_child` (the sealed process that reads old pickles), `pickle_sandbox` (which
starts it), `converted` (which keeps what it made); then `sharded` and `values`.
"""

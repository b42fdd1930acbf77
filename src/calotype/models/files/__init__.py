"""Weight files in and out: bytes, headers, dtypes, tensors. Knows nothing of Stable Diffusion.

In reading order: `kinds`, `opened`, `tensor_layout`, `safetensors_header`, `tensor_file`, `safetensors_writer`,
`sharded`, then `pickle_child` (the sealed process that reads old pickles), `pickle_sandbox` (which starts it) and
`converted` (which remembers what it made).
"""

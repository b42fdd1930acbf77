"""The sandboxed process that reads old pickles and writes safetensors, with the standard library only.

`pickle_sandbox` runs `bootstrap`; `main` converts; `sandbox` and `seccomp` drop privileges first.
"""

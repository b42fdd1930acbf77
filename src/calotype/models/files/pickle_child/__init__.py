"""The sealed process that reads old pickles and writes safetensors. Standard library only, no torch.

`start` is run by `pickle_sandbox`; `main` does the work; `limits` and `seccomp` take powers away first.
"""

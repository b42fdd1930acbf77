"""Regions of networks compiled by torch (AOTInductor) into files that are loaded in milliseconds.

Reading order: `region.py`, `manager.py` (runs regions), `aot_package.py` (compiles a region to a file, and
loads it), `subprocess_compiler.py` and `worker_process.py` (compile in other processes).
"""

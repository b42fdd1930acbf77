"""Engines built ahead of time: compiled artifacts are stored, so that the next start need not compile.

Reading order: `shapes.py`, `cache_key.py` (what an engine is built for), `store.py` (the folders of engines),
`build.py`, `lookup.py`. Weights are never stored: an engine serves every model of the same architecture.
"""

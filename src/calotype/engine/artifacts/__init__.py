"""Engines prepared ahead of time: what was compiled is kept, so that the next start need not compile.

Reading order: `shapes.py`, `target.py` (what an engine is built for), `artefact.py` (the folder it is kept
in), `build.py`, `use.py`. Weights are never kept: an engine serves every model of the same architecture.
"""

"""Exports models as ONNX files for other runtimes. Calotype itself runs these files only to verify them.

Reading order: `wrappers.py`, `export_part.py`, `verify.py`, `export.py`.
"""

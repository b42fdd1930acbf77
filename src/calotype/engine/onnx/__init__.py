"""Models as ONNX files, for who runs them elsewhere. Nothing in Calotype runs these files but the check.

Reading order: parts, graph, check, export.
"""

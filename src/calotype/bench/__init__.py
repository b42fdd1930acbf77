"""Benchmarks: image quality and speed of models, and comparison with published measurements.

The package builds on the engine and the training data; the command line builds on it.
"""

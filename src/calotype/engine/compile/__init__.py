"""Regions of networks compiled by torch (AOTInductor) into files that are loaded in milliseconds.

Reading order: `package.py` (a region to a file, and back), `hollow.py` (a model without numbers, which is all
a compiler needs), `elsewhere.py` (both in a process of their own).
"""

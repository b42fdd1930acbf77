"""Compares presets on the same prompts and seeds: speed, memory and image quality.

Reading order: `candidates` (presets); `generate` (images, time, memory); `score` (classification of the
images); `report` and `contact_sheet` (output); then `run`, which does it all.
"""

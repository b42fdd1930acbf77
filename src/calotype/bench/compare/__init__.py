"""Presets side by side: what each costs, and what it does to the pictures of the same prompts and seeds.

Reading order: `candidates` (what is compared); `making` (pictures, seconds, memory); `judging` (what a
recogniser thinks of them); `report` and `sheet` (what is shown); then `compare`, which does it all.
"""

"""Measures how fast a recipe's data can be read, without a GPU.

Reading order: `feeding` (what rates mean, in plain numbers), `measure` (the clock), `records`.
"""

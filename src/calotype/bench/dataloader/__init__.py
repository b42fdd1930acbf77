"""How fast a recipe's data can be read, before any GPU waits for it.

Reading order: `feeding` (what rates mean, in plain numbers), `measure` (the clock), `records`.
"""

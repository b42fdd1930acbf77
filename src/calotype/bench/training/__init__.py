"""Measures training steps of a recipe and of a typical training loop with diffusers.

Reading order: `points` (what settings mean), `plain` (the peers' loop), then `measure`.
"""

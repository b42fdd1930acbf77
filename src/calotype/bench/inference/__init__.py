"""Measures image generation by Calotype and by diffusers, on the same weights, seeds and shapes.

Reading order: `points` (settings), `flops` (counted arithmetic), `stage_times`, `diffusers_baseline`,
`similarity`, `model_cache`, then `measure`, which does it all in the process of one point.
"""

"""Training: a recipe is a model plus passes plus data plus an optimizer.

Reading order: `recipes`, `objective`, `subject`, `loop`, `checkpoint`, then `data/`.
"""

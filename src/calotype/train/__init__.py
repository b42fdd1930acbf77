"""Training: a recipe combines a model, passes, data and an optimizer.

Reading order: `recipes`, `loss`, `tasks/`, `trainer`, `train`, `checkpoint/`, then `data/`.
"""

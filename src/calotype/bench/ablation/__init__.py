"""What each pass of a preset, or each switch of a recipe, gives: taken away alone, and on alone.

Reading order: `passes` and `switches` (what is varied), `variants` (as points), `gains` (what each gives).
"""

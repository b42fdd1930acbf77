"""Recipes as YAML, one file each; see `calotype.train.recipes`."""

"""Sweeps as YAML; `calotype bench inference NAME` and `calotype bench train NAME` run them."""

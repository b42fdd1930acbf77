"""Tables of benchmark rows as YAML; `calotype train table` runs them."""

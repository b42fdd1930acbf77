"""Training steps by the clock: a recipe's, and those of the loop people write with diffusers.

Reading order: `points` (what settings mean), `plain` (the peers' loop), then `measure`.
"""

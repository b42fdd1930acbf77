"""Pictures by the clock: ours and diffusers', on the same weights, seeds and shapes.

Reading order: `points` (what settings mean), `work` (counted arithmetic), `ours`, `peers`, `likeness`, then
`measure`, which does it all in the process of one point.
"""

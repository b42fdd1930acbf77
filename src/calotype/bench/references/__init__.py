"""Measurements of others and of ours side by side. Loads without torch.

Reading order: `entry` (a measurement, whoever made it), `trials`, `library` (what others measured),
`records` (what was measured here; a new kind of record is one adapter there), `units` (figures in one unit),
`differences` (what is not alike), `comparing`, `beside` (published tables row by row), and `report` (what is
shown).
"""

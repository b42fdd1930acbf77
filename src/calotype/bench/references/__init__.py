"""Compares our measurements with published ones. The package loads without torch.

Reading order: `types` (an entry, ours or published), `aggregate` (trials), `load` (published measurements),
`from_records` (our records; a new kind of record is one adapter there), `units` (figures in common units),
`settings_diff` (differing settings), `nearest`, `table_join` (published tables row by row), and `report`
(output).
"""

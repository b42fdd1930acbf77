"""Derives conclusions from measurements and shows their arithmetic. The package loads without torch.

Reading order: `types`; `group_by` (measurements that differ in one setting only); one file for each kind of
conclusion: `gpu_ratios`, `scaling`, `effects`, `precision`, `linear_fits`, `batch_and_guidance`,
`vs_references`; `published_claims` (the sources' own conclusions, recomputed); then `run` and `report`.
"""

"""What follows from measurements, with the arithmetic shown. Loads without torch.

Reading order: `statement`; `groups` (which measurements differ in one thing only); one file a kind of
conclusion: `gpus`, `scaling`, `effects`, `precision`, `lines`, `shapes`, `against`; `claims` (what the
sources conclude themselves, derived again); then `conclude` and `report`.
"""

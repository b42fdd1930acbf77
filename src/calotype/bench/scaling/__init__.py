"""Measures, models and predicts how training scales over GPUs and nodes.

Reading order: `allreduce_model` and `model` (the model of a step), `fit`; `observations` (measurements as
points), `published` (published points), `predict` (the whole study as one record), `report` (rows). These
load without torch; `plan` (runs of a study) and `measure_links` (interconnect) are for measuring.
"""

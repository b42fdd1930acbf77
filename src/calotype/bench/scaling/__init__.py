"""How training scales over GPUs and nodes: measured, explained by a model of a step, and predicted.

Reading order: `stragglers`, `exchange` and `step_time` (the model), `fitting`; `study` (measurements as
points), `published` (what others measured), `prediction` (all of it as one record), `tables` (in rows). These
load without torch; `points` (what is measured) and `links` (the wires) are for who runs it.
"""

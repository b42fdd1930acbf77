"""The worker: a process that owns a device, holds models and runs many jobs in shared batches.

Reading order: `protocols.py` (what the batcher requires of an engine), `row_limits.py`, `batch_policy.py`,
`group_scheduler.py` and `job_state.py` (row limits, batch sizes, which group is next, an active job),
`batcher.py` (the work between two evaluations), `image_encoder.py` (PNG files in threads), `model_cache.py`
(loaded models), `options.py` and `main.py` (the process), `process.py` (the server's handle on a worker).
`engine_adapter.py` (with `cuda_timing.py`) adapts Calotype's engine; `fake_engine.py` is a stand-in.
"""

"""A worker: the process that owns a device, holds models and makes the pictures of many jobs at once.

Reading order: `engines.py` (what is asked of an engine), `limits.py`, `sharing.py`, `turns.py` and
`tickets.py` (rows, how many of them at a time, whose turn it is, a job under way), `batcher.py` (what happens
between two evaluations), `finishing.py` (PNG files in threads), `models.py` (what is loaded), `channel.py`
(frames on a socket), `options.py` and `main.py` (the process), `start.py` (the server's handle on one).
`real_engine.py` (with `device_times.py`) is Calotype's engine, `idle_engine.py` one that does nothing.
"""

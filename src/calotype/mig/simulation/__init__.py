"""A simulated MIG driver with the real one's rules, refusals, messages and failures.

`fake_host` is the machine's state, `rules` the operations on it, `fake_driver` a `MigDriver`, `fake_smi` an
nvidia-smi. The state is in a file that several processes may share. What NVIDIA does not publish is inferred
from captured transcripts: chiefly where the driver places a slice without an explicit placement
(`rules.driver_choice`).
"""

"""A driver that is only pretended, with the real one's rules, refusals, words and bad days.

`host` is the machine's state, `rules` what may be done to it, `driver` the same as our other drivers are,
`smi` an nvidia-smi. The state lives in a file that several processes may share. What NVIDIA does not
publish is inferred from captured transcripts: chiefly where the driver puts a slice when nobody says where
(`rules.driver_choice`).
"""

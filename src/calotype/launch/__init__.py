"""Runs commands past this process: on this machine, under Slurm, on Kubernetes, on Ray.

Existing engines do the work: a back end renders a file that can be used without Calotype, hands it in, asks
how it goes, and ends it. No torch. Reading order: `backend.py`, `records.py`, `submitting.py`, then a back
end's room.
"""

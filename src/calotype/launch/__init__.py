"""Launches jobs that outlive this process: on this machine, under Slurm, on Kubernetes, on Ray.

Existing schedulers do the work: a backend renders a file that can be used without Calotype, submits it, reads
the job's status, and cancels it. Needs no torch. Reading order: `backend.py`, `job_store.py`, `submit.py`,
then the folder of a backend.
"""

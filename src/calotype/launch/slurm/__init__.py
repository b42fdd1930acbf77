"""Slurm: an sbatch file in which torchrun's processes meet under srun, requeued when they are preempted.

`script.py` writes it, `partitions.py` asks the cluster what it would refuse, `queue.py` reads how a job
stands, `backend.py` puts them together. Talks to Slurm by its own programs, so any version will do.
"""

from calotype.launch.slurm.backend import SlurmBackend

__all__ = ["SlurmBackend"]

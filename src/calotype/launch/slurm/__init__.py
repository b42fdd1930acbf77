"""The Slurm backend: an sbatch file that starts torchrun under srun, requeued after preemption.

`sbatch.py` writes the file, `preflight.py` checks a spec against the cluster, `status.py` reads a job's
status, `backend.py` combines them. Calls Slurm's own programs, so any version works.
"""

from calotype.launch.slurm.backend import SlurmBackend

__all__ = ["SlurmBackend"]

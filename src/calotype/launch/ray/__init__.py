"""Ray as a back end: a driver in Python, handed in as a Ray job, that runs torchrun on nodes of the cluster.

Reading order: `driver.py`, which is what is rendered, `rendering.py`, `jobs.py`, `nodes.py`, `backend.py`.
Rendering needs no Ray.
"""

from calotype.launch.ray.backend import RayBackend

__all__ = ["RayBackend"]

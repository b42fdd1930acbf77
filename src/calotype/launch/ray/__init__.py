"""The Ray backend: a Python driver, submitted as a Ray job, that runs torchrun on nodes of the cluster.

Reading order: `driver.py` (the rendered file), `render.py`, `client.py`, `preflight.py`, `backend.py`.
Rendering needs no Ray.
"""

from calotype.launch.ray.backend import RayBackend

__all__ = ["RayBackend"]

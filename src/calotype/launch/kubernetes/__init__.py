"""The Kubernetes backend: Kubeflow's TrainJob or PyTorchJob for training, a Deployment for serving.

Reading order: `pod_template.py`, `train_job.py`, `pytorch_job.py`, `client_protocol.py`, `backend.py`,
`logs.py`; `serving.py` is independent.
"""

from calotype.launch.kubernetes.backend import KubernetesBackend

__all__ = ["KubernetesBackend"]

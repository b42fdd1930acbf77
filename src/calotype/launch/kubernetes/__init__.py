"""Kubernetes as a back end: Kubeflow's TrainJob or PyTorchJob for training, a Deployment for serving.

Reading order: `pod.py`, `train_job.py`, `pytorch_job.py`, `cluster.py`, `backend.py`, `pod_logs.py`;
`serving.py` stands for itself.
"""

from calotype.launch.kubernetes.backend import KubernetesBackend

__all__ = ["KubernetesBackend"]

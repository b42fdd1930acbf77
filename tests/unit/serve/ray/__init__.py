"""Deployments whose workers are replicas in a Ray cluster of two nodes."""

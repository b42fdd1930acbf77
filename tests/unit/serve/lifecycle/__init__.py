"""Deployments from their start to their end."""

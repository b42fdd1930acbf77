"""Information about a deployment's environment: the machine, model files and measurements; without torch.

Reading order: `host_info`, `benchmark_records`, `model_inspector`, `system_info`.
"""

"""What a deployment can tell of the place it is in: the machine, model files, measurements. No torch.

Reading order: `machine`, `records`, `inspecting`, `surroundings`.
"""

"""Our own way through a model's networks, over the weights of the diffusers modules that hold them."""

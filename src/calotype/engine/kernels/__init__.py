"""Fused operations around a UNet's matrix products, with few passes over memory: Triton on a GPU, else torch.

One file per operation holds the function to call and the plain equivalent; its `_triton` neighbour holds the
kernels and is imported at the first call that needs them. For inference, but for `adamw` and
`geglu_backward`: nothing here has a gradient, and tensors that ask for one get the plain operation. Block
sizes are fixed functions of a row's shape, so that a row's numbers depend neither on its neighbours in the
batch nor on timing; what differs between batches and picture sizes is not compiled in, as far as it can be
helped.
"""

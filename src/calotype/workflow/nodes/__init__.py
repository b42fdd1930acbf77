"""The built-in nodes: declarations by topic, and their implementations in `impl/`.

Only `impl/` imports heavy libraries, when a node first runs. Reading order: `value_types`, `model_provider`,
`lazy`, `inputs`, the topics; `impl/conditioning_masks`, `impl/cfg`, `impl/sampling`, then the others.
"""

from calotype.workflow.node_api import NodeDef
from calotype.workflow.nodes import calotype, conditioning, images, latents, loaders, masks, sampling, text

NODES: tuple[NodeDef, ...] = (
    *loaders.NODES,
    *text.NODES,
    *conditioning.NODES,
    *latents.NODES,
    *sampling.NODES,
    *images.NODES,
    *masks.NODES,
    *calotype.NODES,
)

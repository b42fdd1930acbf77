"""The nodes Calotype ships: declarations by topic, and in work/ what they do.

Heavy libraries are imported by work/ alone, when a node first runs. In reading order: `values`, `models`,
`later`, `inputs`, the topics; `work/conditions`, `work/guiding`, `work/sampling`, then the others.
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

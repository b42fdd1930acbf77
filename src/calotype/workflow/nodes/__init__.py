"""The nodes Calotype ships, one file per topic; heavy libraries are imported inside what runs only."""

from calotype.workflow.interface import NodeClass

NODES: tuple[NodeClass, ...] = ()

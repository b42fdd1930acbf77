"""Low-rank adapters: read in any of the dialects people share them in, added to a model and taken out again."""

from calotype.models.lora.adapter import Adapter, LayerUpdate
from calotype.models.lora.dialects import read_adapter
from calotype.models.lora.stack import AdapterStack

__all__ = ["Adapter", "AdapterStack", "LayerUpdate", "read_adapter"]

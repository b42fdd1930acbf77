"""Low-rank adapters (LoRA): reads their file formats, merges them into a model and removes them again.

Reading order: `adapter`, `key_mapping`, `metadata`, `formats`, `merge`.
"""

from calotype.models.lora.adapter import Adapter, LayerUpdate
from calotype.models.lora.formats import adapter_sha256, read_adapter
from calotype.models.lora.merge import LoraMerger

__all__ = ["Adapter", "LayerUpdate", "LoraMerger", "adapter_sha256", "read_adapter"]

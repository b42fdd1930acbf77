"""Low-rank adapters: read in any of the dialects people share them in, put into a model and taken out again.

In reading order: `adapter`, `layer_names`, `declared`, `dialects`, `stack`.
"""

from calotype.models.lora.adapter import Adapter, LayerUpdate
from calotype.models.lora.formats import adapter_sha256, read_adapter
from calotype.models.lora.merge import LoraMerger

__all__ = ["Adapter", "LayerUpdate", "LoraMerger", "adapter_sha256", "read_adapter"]

"""OpenCLIP ↔ transformers names of a text encoder. Knows nothing of tensors.

OpenCLIP keeps query, key and value of a layer in one matrix; transformers keeps three.
"""

LAYER = {
    "layer_norm1": "ln_1",
    "layer_norm2": "ln_2",
    "mlp.fc1": "mlp.c_fc",
    "mlp.fc2": "mlp.c_proj",
    "self_attn.out_proj": "attn.out_proj",
}
QUERY_KEY_VALUE = ("q_proj", "k_proj", "v_proj")


def module_names(num_layers: int) -> dict[str, str]:
    """Transformers module prefix → OpenCLIP module prefix, for layers that correspond one to one."""
    names = {"text_model.final_layer_norm": "ln_final", "text_model.embeddings.token_embedding": "token_embedding"}
    for layer in range(num_layers):
        for ours, theirs in LAYER.items():
            names[f"text_model.encoder.layers.{layer}.{ours}"] = f"transformer.resblocks.{layer}.{theirs}"
    return names


def joined_names(num_layers: int) -> dict[str, tuple[str, ...]]:
    """OpenCLIP tensor → the transformers tensors it joins, in order."""
    joined = {}
    for layer in range(num_layers):
        attention = f"text_model.encoder.layers.{layer}.self_attn"
        for kind in ("weight", "bias"):
            parts = tuple(f"{attention}.{part}.{kind}" for part in QUERY_KEY_VALUE)
            joined[f"transformer.resblocks.{layer}.attn.in_proj_{kind}"] = parts
    return joined

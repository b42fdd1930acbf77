"""Maps the names of a text encoder between OpenCLIP and transformers.

OpenCLIP joins query, key and value of a layer in one matrix; transformers has three.
"""

LAYER = {
    "layer_norm1": "ln_1",
    "layer_norm2": "ln_2",
    "mlp.fc1": "mlp.c_fc",
    "mlp.fc2": "mlp.c_proj",
    "self_attn.out_proj": "attn.out_proj",
}
QUERY_KEY_VALUE = ("q_proj", "k_proj", "v_proj")
OUTSIDE_THE_LAYERS = {
    "text_model.embeddings.token_embedding.weight": "token_embedding.weight",
    "text_model.embeddings.position_embedding.weight": "positional_embedding",
    "text_model.final_layer_norm.weight": "ln_final.weight",
    "text_model.final_layer_norm.bias": "ln_final.bias",
    "text_projection.weight": "text_projection",
}
# Names without the `text_model.` level that diffusers' scripts do not rename → their OpenCLIP names.
WITHOUT_LEVEL = {
    "encoder.layers.": "transformer.resblocks.",
    "final_layer_norm.": "ln_final.",
    "embeddings.token_embedding.weight": "token_embedding.weight",
    "embeddings.position_embedding.weight": "positional_embedding",
}
# OpenCLIP multiplies from the right by a matrix where transformers has a linear layer.
TRANSPOSED_THERE = ("text_projection.weight",)


def state_dict_keys(num_layers: int) -> dict[str, str]:
    """Transformers tensor → OpenCLIP tensor, for tensors that correspond one to one."""
    names = dict(OUTSIDE_THE_LAYERS)
    for layer in range(num_layers):
        for transformers, open_clip in LAYER.items():
            for kind in ("weight", "bias"):
                name = f"text_model.encoder.layers.{layer}.{transformers}.{kind}"
                names[name] = f"transformer.resblocks.{layer}.{open_clip}.{kind}"
    return names


def fused_keys(num_layers: int) -> dict[str, tuple[str, ...]]:
    """OpenCLIP tensor → the transformers tensors it joins, in order."""
    joined = {}
    for layer in range(num_layers):
        attention = f"text_model.encoder.layers.{layer}.self_attn"
        for kind in ("weight", "bias"):
            parts = tuple(f"{attention}.{part}.{kind}" for part in QUERY_KEY_VALUE)
            joined[f"transformer.resblocks.{layer}.attn.in_proj_{kind}"] = parts
    return joined

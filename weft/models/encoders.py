"""Families of encoders of text and images: how their `config.json` is read, and the names of their tensors."""

from __future__ import annotations

from typing import Any

from weft.errors import ArgumentError
from weft.models.config import Config, Fields, Kind, Tower
from weft.models.decoders import ALL

BERT = {
    "bert.embeddings.word_embeddings": "tokens",
    "bert.embeddings.position_embeddings": "positions",
    "bert.embeddings.token_type_embeddings": "types",
    "bert.embeddings.LayerNorm": "embedding_norm",
    "bert.encoder.layer.*.attention.self.query": "layers.*.attention.query",
    "bert.encoder.layer.*.attention.self.key": "layers.*.attention.key",
    "bert.encoder.layer.*.attention.self.value": "layers.*.attention.value",
    "bert.encoder.layer.*.attention.output.dense": "layers.*.attention.output",
    "bert.encoder.layer.*.attention.output.LayerNorm": "layers.*.attention.norm",
    "bert.encoder.layer.*.intermediate.dense": "layers.*.mlp.up",
    "bert.encoder.layer.*.output.dense": "layers.*.mlp.down",
    "bert.encoder.layer.*.output.LayerNorm": "layers.*.mlp.norm",
    "bert.pooler.dense": "pooler",
    "cls.predictions.transform.dense": "transform",
    "cls.predictions.transform.LayerNorm": "transform_norm",
    "cls.predictions.bias": "head.bias",
    "cls.predictions.decoder": "head",
    "cls.seq_relationship": "sequence_relation",
    "classifier": "classifier",
}
ROBERTA = {name.replace("bert.", "roberta.", 1): path for name, path in BERT.items() if name.startswith("bert.")} | {
    "lm_head.dense": "transform",
    "lm_head.layer_norm": "transform_norm",
    "lm_head.bias": "head.bias",
    "lm_head.decoder": "head",
    "classifier.dense": "classifier_transform",
    "classifier.out_proj": "classifier_output",
    "classifier": "classifier",
}
DISTILBERT = {
    "distilbert.embeddings.word_embeddings": "tokens",
    "distilbert.embeddings.position_embeddings": "positions",
    "distilbert.embeddings.LayerNorm": "embedding_norm",
    "distilbert.transformer.layer.*.attention.q_lin": "layers.*.attention.query",
    "distilbert.transformer.layer.*.attention.k_lin": "layers.*.attention.key",
    "distilbert.transformer.layer.*.attention.v_lin": "layers.*.attention.value",
    "distilbert.transformer.layer.*.attention.out_lin": "layers.*.attention.output",
    "distilbert.transformer.layer.*.sa_layer_norm": "layers.*.attention.norm",
    "distilbert.transformer.layer.*.ffn.lin1": "layers.*.mlp.up",
    "distilbert.transformer.layer.*.ffn.lin2": "layers.*.mlp.down",
    "distilbert.transformer.layer.*.output_layer_norm": "layers.*.mlp.norm",
    "vocab_transform": "transform",
    "vocab_layer_norm": "transform_norm",
    "vocab_projector": "head",
    "pre_classifier": "pooler",
    "classifier": "classifier",
}
VIT = {
    "vit.embeddings.cls_token": "class_token",
    "vit.embeddings.patch_embeddings.projection": "patches",
    "vit.embeddings.position_embeddings": "positions.weight",
    "vit.encoder.layer.*.attention.attention.query": "layers.*.attention.query",
    "vit.encoder.layer.*.attention.attention.key": "layers.*.attention.key",
    "vit.encoder.layer.*.attention.attention.value": "layers.*.attention.value",
    "vit.encoder.layer.*.attention.output.dense": "layers.*.attention.output",
    "vit.encoder.layer.*.layernorm_before": "layers.*.attention.norm",
    "vit.encoder.layer.*.layernorm_after": "layers.*.mlp.norm",
    "vit.encoder.layer.*.intermediate.dense": "layers.*.mlp.up",
    "vit.encoder.layer.*.output.dense": "layers.*.mlp.down",
    "vit.layernorm": "norm",
    "vit.pooler.dense": "pooler",
    "classifier": "classifier",
}


def _clip_layers(outer: str, own: str) -> dict[str, str]:
    """Return the names of the layers of a tower of CLIP or SigLIP."""
    rows = {
        "layer_norm1": "attention.norm",
        "self_attn.q_proj": "attention.query",
        "self_attn.k_proj": "attention.key",
        "self_attn.v_proj": "attention.value",
        "self_attn.out_proj": "attention.output",
        "layer_norm2": "mlp.norm",
        "mlp.fc1": "mlp.up",
        "mlp.fc2": "mlp.down",
    }
    return {f"{outer}.encoder.layers.*.{name}": f"{own}.layers.*.{path}" for name, path in rows.items()}


CLIP = {
    "text_model.embeddings.token_embedding": "text.tokens",
    "text_model.embeddings.position_embedding": "text.positions",
    "text_model.final_layer_norm": "text.norm",
    "vision_model.embeddings.class_embedding": "image.class_token",
    "vision_model.embeddings.patch_embedding": "image.patches",
    "vision_model.embeddings.position_embedding": "image.positions",
    "vision_model.pre_layrnorm": "image.embedding_norm",
    "vision_model.post_layernorm": "image.norm",
    "text_projection": "text_projection",
    "visual_projection": "image_projection",
    "logit_scale": "logit_scale",
    **_clip_layers("text_model", "text"),
    **_clip_layers("vision_model", "image"),
}
SIGLIP_HEADS = {
    "text_model.head": "text_projection",
    "logit_bias": "logit_bias",
    "vision_model.head.probe": "image_pool.probe",
    "vision_model.head.attention.in_proj_weight": "image_pool.query+key+value.weight",
    "vision_model.head.attention.in_proj_bias": "image_pool.query+key+value.bias",
    "vision_model.head.attention.out_proj": "image_pool.output",
    "vision_model.head.layernorm": "image_pool.norm",
    "vision_model.head.mlp.fc1": "image_pool.mlp.up",
    "vision_model.head.mlp.fc2": "image_pool.mlp.down",
}
SIGLIP = {name: path for name, path in CLIP.items() if not name.endswith("_projection")} | SIGLIP_HEADS

Shapes = dict[str, tuple[int, ...]]


def linear(path: str, rows: int, columns: int) -> Shapes:
    """Return the shapes of a projection with a bias."""
    return {f"{path}.weight": (rows, columns), f"{path}.bias": (rows,)}


def norm(path: str, width: int) -> Shapes:
    """Return the shapes of a norm with a bias."""
    return {f"{path}.weight": (width,), f"{path}.bias": (width,)}


def count_labels(fields: Fields) -> int:
    """Return the number of labels of a classifier."""
    return len(fields.get("id2label", {})) or int(fields.get("num_labels", 2))


def _attention_text(fields: Fields) -> Tower:
    """Read the tower of BERT, RoBERTa or DistilBERT."""
    family = fields.raw["model_type"]
    is_distil = family == "distilbert"
    width = fields["dim" if is_distil else "hidden_size"]
    heads = fields["n_heads" if is_distil else "num_attention_heads"]
    if fields.get("position_embedding_type", "absolute") != "absolute" or fields.get("is_decoder", False):
        raise ArgumentError(f"{family} must be an encoder with absolute positions.", received=fields.where)
    offset = fields.get("pad_token_id", 1) + 1 if family in ("roberta", "xlm-roberta") else 0
    return Tower(
        width=width,
        heads=heads,
        key_heads=heads,
        head_size=width // heads,
        hidden=fields["hidden_dim" if is_distil else "intermediate_size"],
        kinds=(Kind(),) * fields["n_layers" if is_distil else "num_hidden_layers"],
        norm="layer",
        epsilon=fields.get("layer_norm_eps", 1e-12),
        norm_last=True,
        activation=fields.first(("hidden_act", "activation"), "gelu"),
        gated=False,
        causal=False,
        scale=(width // heads) ** -0.5,
        biases=ALL,
        vocabulary=fields["vocab_size"],
        positions=fields.get("max_position_embeddings", 512) - offset,
        position_offset=offset,
        types=0 if is_distil else fields.get("type_vocab_size", 2),
        embedding_norm=True,
        final_norm=False,
    )


def read_text(fields: Fields) -> Config:
    """Read the config of BERT, RoBERTa or DistilBERT; `architectures` says what the model computes."""
    tower = _attention_text(fields)
    kind = next(iter(fields.get("architectures", [])), "Model")
    width, family = tower.width, fields.raw["model_type"]
    extras: Shapes = {}
    options: dict[str, Any] = {"pooling": "tanh"}
    if kind.endswith(("ForMaskedLM", "ForPreTraining")):
        task = "token logits"
        extras |= linear("transform", width, width) | norm("transform_norm", width) | {"head.bias": (tower.vocabulary,)}
        if not fields.get("tie_word_embeddings", True):
            extras["head.weight"] = (tower.vocabulary, width)
        options["transform"] = tower.activation if family != "roberta" else "gelu"
    elif kind.endswith("ForSequenceClassification"):
        task = "labels"
        names = ("classifier_transform", "classifier_output") if family == "roberta" else ("pooler", "classifier")
        extras |= linear(names[0], width, width) | linear(names[1], count_labels(fields), width)
        options["pooling"] = "relu" if family == "distilbert" else "tanh"
    elif kind.endswith("ForTokenClassification"):
        task = "token labels"
        extras |= linear("classifier", count_labels(fields), width)
    else:
        task = "features"
        if family != "distilbert":
            extras |= linear("pooler", width, width)
            options["optional"] = ("pooler.weight", "pooler.bias")
    return Config(family, task, {"": tower}, extras, options, tower.positions, dict(fields.raw))


def image_tower(fields: Fields, **choices: Any) -> Tower:
    """Read the tower of a model of images."""
    width, heads = fields.get("hidden_size", 768), fields.get("num_attention_heads", 12)
    image, patch = (_square(fields.get(name, size)) for name, size in (("image_size", 224), ("patch_size", 16)))
    settings: dict[str, Any] = {
        "epsilon": fields.get("layer_norm_eps", 1e-12),
        "activation": fields.get("hidden_act", "gelu"),
        "class_token": True,
        "biases": ALL,
    } | choices
    return Tower(
        width=width,
        heads=heads,
        key_heads=heads,
        head_size=width // heads,
        hidden=fields.get("intermediate_size", 3072),
        kinds=(Kind(),) * fields.get("num_hidden_layers", 12),
        norm="layer",
        gated=False,
        causal=False,
        scale=(width // heads) ** -0.5,
        positions=(image // patch) ** 2 + settings["class_token"],
        patch=patch,
        image=image,
        channels=fields.get("num_channels", 3),
        **settings,
    )


def _square(size: Any) -> int:
    if isinstance(size, (list, tuple)):
        if len(set(size)) != 1:
            raise ArgumentError("Images and patches must be square.", received=repr(size))
        return int(size[0])
    return int(size)


def read_vit(fields: Fields) -> Config:
    """Read the config of ViT."""
    biases = ALL if fields.get("qkv_bias", True) else ALL - {"query", "key", "value"}
    tower = image_tower(fields, biases=biases)
    options: dict[str, Any] = {"pooling": "tanh"}
    if any(name.endswith("ForImageClassification") for name in fields.get("architectures", [])):
        extras, task = linear("classifier", count_labels(fields), tower.width), "image labels"
    else:
        extras, task = linear("pooler", tower.width, tower.width), "image features"
        options["optional"] = tuple(extras)
    return Config("vit", task, {"": tower}, extras, options, None, dict(fields.raw))


def _clip_text(fields: Fields, **choices: Any) -> Tower:
    width, heads = fields.get("hidden_size", 512), fields.get("num_attention_heads", 8)
    return Tower(
        width=width,
        heads=heads,
        key_heads=heads,
        head_size=width // heads,
        hidden=fields.get("intermediate_size", 2048),
        kinds=(Kind(),) * fields.get("num_hidden_layers", 12),
        norm="layer",
        gated=False,
        scale=(width // heads) ** -0.5,
        biases=ALL,
        vocabulary=fields.get("vocab_size", 49408),
        positions=fields.get("max_position_embeddings", 77),
        **choices,
    )


def read_clip(fields: Fields) -> Config:
    """Read the config of CLIP."""
    text, image = fields.part("text_config"), fields.part("vision_config")
    epsilon, activation = text.get("layer_norm_eps", 1e-5), text.get("hidden_act", "quick_gelu")
    towers = {
        "text": _clip_text(text, epsilon=epsilon, activation=activation),
        "image": image_tower(
            image,
            epsilon=image.get("layer_norm_eps", 1e-5),
            activation=image.get("hidden_act", "quick_gelu"),
            patch_bias=False,
            embedding_norm=True,
        ),
    }
    width = fields.get("projection_dim", 512)
    extras: Shapes = {
        "text_projection.weight": (width, towers["text"].width),
        "image_projection.weight": (width, towers["image"].width),
        "logit_scale": (),
    }
    # Files of the first years say 2 and mean the largest token.
    end = text.get("eos_token_id", 49407)
    options = {"end": None if end == 2 else end}
    return Config("clip", "similarity", towers, extras, options, towers["text"].positions, dict(fields.raw))


def read_siglip(fields: Fields) -> Config:
    """Read the config of SigLIP."""
    text, image = fields.part("text_config"), fields.part("vision_config")
    tower = _clip_text(
        Fields({"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 32000,
                "max_position_embeddings": 64, **text.raw}, text.where),
        epsilon=text.get("layer_norm_eps", 1e-6),
        activation=text.get("hidden_act", "gelu_pytorch_tanh"),
        causal=False,
    )  # fmt: skip
    pictures = image_tower(
        image,
        epsilon=image.get("layer_norm_eps", 1e-6),
        activation=image.get("hidden_act", "gelu_pytorch_tanh"),
        class_token=False,
    )
    if not image.get("vision_use_head", True):
        raise ArgumentError("SigLIP must have a pooling head for images.", received=f"vision_use_head in {image.where}")
    width, hidden = pictures.width, pictures.hidden
    extras = linear("text_projection", text.get("projection_size", tower.width), tower.width)
    extras |= {"image_pool.probe": (width,)}
    for name in ("query", "key", "value", "output"):
        extras |= linear(f"image_pool.{name}", width, width)
    extras |= norm("image_pool.norm", width)
    extras |= linear("image_pool.mlp.up", hidden, width) | linear("image_pool.mlp.down", width, hidden)
    extras |= {"logit_scale": (1,), "logit_bias": (1,)}
    towers = {"text": tower, "image": pictures}
    return Config("siglip", "similarity", towers, extras, {"end": "last"}, tower.positions, dict(fields.raw))

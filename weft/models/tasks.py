"""What models compute besides the next token: features, labels, vectors of texts and images, and their similarity."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft import lax
from weft.models.config import Config
from weft.models.convolutions import convnext, pool_features, residual_network
from weft.models.forward import decode, head_logits
from weft.models.transformer import (
    ACTIVATIONS,
    Call,
    attend,
    encode,
    encoder_memories,
    feed_forward,
    normalize,
    patch_embeddings,
    plain_context,
    project,
    run_layers,
    sound_embeddings,
    split_heads,
    token_embeddings,
)

# ----------------------------------------------------------------------------------------------------------------- text


def text_states(config: Config, params: dict[str, Any], ids: Any, mask: Any = None, types: Any = None) -> Any:
    """Return the last states (batch, tokens, width) of an encoder of text."""
    context = plain_context(ids.shape[0], ids.shape[1], params, mask)
    x = token_embeddings(ids, params, config.tower, context.positions, types)
    return run_layers(x, params, Call(config.tower, context))[0]


def read_text(config: Config, params: dict[str, Any], ids: Any, mask: Any = None, types: Any = None) -> Any:
    """Return what an encoder of text computes: states, logits of tokens, or logits of labels."""
    x = text_states(config, params, ids, mask, types)
    if config.task == "token logits":
        x = ACTIVATIONS[config.get("transform")](project(x, params["transform"]))
        return head_logits(normalize(x, params["transform_norm"], config.tower), params, config)
    if config.task == "labels":
        w = params["classifier_output" if "classifier_output" in params else "classifier"]
        return project(pool_first(x, params, config), w)
    return project(x, params["classifier"]) if config.task == "token labels" else x


def pool_first(x: Any, params: dict[str, Any], config: Config) -> Any:
    """Project the state of the first token."""
    w = params["classifier_transform" if "classifier_transform" in params else "pooler"]
    return ACTIVATIONS[config.get("pooling")](project(x[:, 0], w))


def pool_states(x: Any, mask: Any, pooling: str) -> Any:
    """Return one vector for each text.

    Args:
        x: states (batch, tokens, width).
        mask: booleans (batch, tokens), false for padding.
        pooling: "mean", "max", "cls" for the first token, or "lasttoken".
    """
    weights = mask.astype(x.dtype)[..., None]
    if pooling == "mean":
        return (x * weights).sum(1) / wnp.maximum(weights.sum(1), 1e-9)
    if pooling == "max":
        return wnp.where(weights > 0, x, -wnp.inf).max(1)
    if pooling == "cls":
        return x[:, 0]
    last = mask.shape[1] - 1 - wnp.argmax(mask[:, ::-1], 1)
    return wnp.take_along_axis(x, last[:, None, None], 1)[:, 0]


def unit_vectors(x: Any) -> Any:
    """Divide the last axis by its length."""
    return x * lax.rsqrt(wnp.maximum((x * x).sum(-1, keepdims=True), 1e-24))


# --------------------------------------------------------------------------------------------------------------- images


def read_images(config: Config, params: dict[str, Any], images: Any) -> Any:
    """Return the features of images, or the logits of their labels."""
    if config.family in ("resnet", "convnext"):
        network = residual_network if config.family == "resnet" else convnext
        x = network(images, params, config)
        return project(pool_features(x, params, config), params["classifier"]) if "classifier" in params else x
    tower = config.tower
    x = encode(patch_embeddings(images, params, tower), params, tower)
    return project(x[:, 0], params["classifier"]) if config.task == "image labels" else x


# ----------------------------------------------------------------------------------------------------- texts and images


def text_vectors(config: Config, params: dict[str, Any], ids: Any, mask: Any = None) -> Any:
    """Return the vectors of texts in the space that they share with images."""
    tower, own = config.towers["text"], params["text"]
    context = plain_context(ids.shape[0], ids.shape[1], own, None)
    context = context._replace(valid=None if mask is None else mask.astype(bool))
    x, _ = run_layers(token_embeddings(ids, own, tower, context.positions), own, Call(tower, context))
    end = config.get("end")
    if end == "last":
        x = x[:, -1]
    else:
        place = wnp.argmax(ids if end is None else (ids == end).astype(wnp.int32), -1)
        x = wnp.take_along_axis(x, place[:, None, None], 1)[:, 0]
    return project(x, params["text_projection"])


def image_vectors(config: Config, params: dict[str, Any], images: Any) -> Any:
    """Return the vectors of images in the space that they share with texts."""
    tower, own = config.towers["image"], params["image"]
    x = encode(patch_embeddings(images, own, tower), own, tower)
    if "image_pool" not in params:
        return project(x[:, 0], params["image_projection"])
    w = params["image_pool"]
    probe = wnp.broadcast_to(w["probe"].astype(x.dtype), (x.shape[0], 1, tower.width))
    q, k, v = (
        split_heads(project(source, w[name]), tower.head_size)
        for source, name in ((probe, "query"), (x, "key"), (x, "value"))
    )
    y = project(attend(q, k, v, None, None, tower), w["output"])
    return (y + feed_forward(normalize(y, w["norm"], tower), w["mlp"], tower))[:, 0]


def similarity(config: Config, params: dict[str, Any], ids: Any, images: Any, mask: Any = None) -> Any:
    """Return the logits (images, texts) of each pair."""
    texts = unit_vectors(text_vectors(config, params, ids, mask))
    pictures = unit_vectors(image_vectors(config, params, images))
    logits = pictures @ texts.T * wnp.exp(params["logit_scale"])
    return logits + params["logit_bias"] if "logit_bias" in params else logits


# ---------------------------------------------------------------------------------------------------------- two towers


def source_states(config: Config, params: dict[str, Any], source: Any, mask: Any = None) -> Any:
    """Return the states of the encoder: of tokens (batch, tokens), or of sound (batch, bins, frames)."""
    tower, own = config.towers["encoder"], params["encoder"]
    if tower.bins:
        return encode(sound_embeddings(source, own, tower), own, tower)
    x = token_embeddings(source, params, tower, None)
    return encode(x, own, tower, mask)


def cross_cache(config: Config, params: dict[str, Any], source: Any, mask: Any = None) -> dict[str, Any]:
    """Return the parts of a decoder's cache that depend on the source."""
    states = source_states(config, params, source, mask)
    pairs = encoder_memories(states, params["decoder"], config.towers["decoder"])
    return {"cross": pairs, "cross_valid": None if mask is None else mask.astype(bool)}


def translate(
    config: Config, params: dict[str, Any], source: Any, ids: Any, mask: Any = None, remat: bool = False
) -> Any:
    """Return the logits (batch, tokens, vocabulary) of the tokens after `ids`, given a source."""
    tower, own = config.towers["decoder"], params["decoder"]
    cross = cross_cache(config, params, source, mask)
    context = plain_context(ids.shape[0], ids.shape[1], own)
    x = token_embeddings(ids, own if "tokens" in own else params, tower, context.positions)
    x, _ = run_layers(x, own, Call(tower, context), None, (cross["cross"], cross["cross_valid"]), remat)
    return head_logits(x, params, config)


# ---------------------------------------------------------------------------------------------------------------- any


def compute(
    config: Config,
    params: dict[str, Any],
    *inputs: Any,
    mask: Any = None,
    types: Any = None,
    pieces: Any = None,
    remat: bool = False,
) -> Any:
    """Compute what a model is for.

    Args:
        config: the description of the model.
        params: its parameters.
        inputs: tokens, images, tokens and images, or a source and tokens.
        mask: booleans (batch, tokens), false for padding of texts or of the source.
        types: token types.
        pieces: numbers of the texts packed into a row.
        remat: whether the backward pass recomputes the layers.
    """
    if config.task == "next token":
        return decode(config, params, inputs[0], mask=mask, pieces=pieces, remat=remat)
    if config.task == "sequence":
        return translate(config, params, inputs[0], inputs[1], mask=mask, remat=remat)
    if config.task == "similarity":
        return similarity(config, params, inputs[0], inputs[1], mask=mask)
    if config.task.startswith("image"):
        return read_images(config, params, inputs[0])
    return read_text(config, params, inputs[0], mask=mask, types=types)

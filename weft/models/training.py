"""Training: the loss of the next token, texts packed into rows, and adapters of low rank."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft import nn, random
from weft.errors import ArgumentError
from weft.models.model import Model
from weft.models.quantization import Quantized


def next_token_loss(
    model: Model, params: Any, ids: Any, mask: Any = None, pieces: Any = None, remat: bool = False
) -> Any:
    """Return the mean cross entropy of each token given those before it.

    Args:
        model: a decoder.
        params: its parameters.
        ids: integers (batch, tokens).
        mask: booleans (batch, tokens), false for tokens that the loss leaves out, such as padding or a question.
        pieces: integers (batch, tokens) that number the texts packed into a row; negative ones are padding.
        remat: whether the backward pass recomputes the layers.

    Returns:
        A number.

    >>> import weft
    >>> from weft import models
    >>> config = models.read_config({"model_type": "gpt2", "vocab_size": 10, "n_embd": 8, "n_head": 2, "n_layer": 1})
    >>> model = models.Model(config, models.init(config, weft.random.key(0)))
    >>> round(float(models.next_token_loss(model, model.params, weft.numpy.array([[1, 2, 3]]))), 1)
    2.3
    """
    logits = model.apply(params, ids, pieces=pieces, remat=remat)[:, :-1]
    targets = ids[:, 1:]
    losses = nn.logsumexp(logits, -1) - wnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    weights = wnp.ones(targets.shape, losses.dtype) if mask is None else mask[:, 1:].astype(losses.dtype)
    if pieces is not None:
        weights = weights * ((pieces[:, 1:] == pieces[:, :-1]) & (pieces[:, 1:] >= 0)).astype(losses.dtype)
    return (losses * weights).sum() / wnp.maximum(weights.sum(), 1)


def pack_texts(texts: Iterable[Sequence[int]], length: int, pad: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Pack texts into rows of one length: each into the first row with enough room, longer ones in parts.

    Args:
        texts: sequences of tokens.
        length: the tokens of a row.
        pad: the token that fills rows.

    Returns:
        Integers (rows, length), and the number of the text of each token in its row, -1 for padding.

    >>> from weft import models
    >>> ids, pieces = models.pack_texts([[1, 2, 3], [4, 5], [6]], 4)
    >>> ids.tolist(), pieces.tolist()
    ([[1, 2, 3, 6], [4, 5, 0, 0]], [[0, 0, 0, 1], [0, 0, -1, -1]])
    """
    if length < 1:
        raise ArgumentError("A row must have at least one token.", received=str(length))
    parts = [text[at : at + length] for text in texts for at in range(0, len(text), length)]
    rows: list[list[Sequence[int]]] = []
    room: list[int] = []
    for part in parts:
        place = next((i for i, left in enumerate(room) if left >= len(part)), None)
        if place is None:
            place = len(rows)
            rows.append([])
            room.append(length)
        rows[place].append(part)
        room[place] -= len(part)
    ids = np.full((len(rows), length), pad, np.int32)
    pieces = np.full((len(rows), length), -1, np.int32)
    for i, row in enumerate(rows):
        at = 0
        for number, part in enumerate(row):
            ids[i, at : at + len(part)], pieces[i, at : at + len(part)] = part, number
            at += len(part)
    return ids, pieces


# ------------------------------------------------------------------------------------------------------------- adapters


def add_lora(
    params: Any, key: Any, rank: int = 8, alpha: float = 16.0, targets: str = r"\.(query|value)$"
) -> tuple[Any, Any]:
    """Add adapters of low rank to projections: training them leaves the model as it is.

    Args:
        params: the parameters of a model.
        key: a random key.
        rank: the rank of the adapters.
        alpha: their factor, times `rank`.
        targets: a regular expression of the dotted names of projections.

    Returns:
        The parameters with the adapters, and the adapters alone as a dict by name: they are trained, and
        `set_lora(params, adapters)` puts them back.

    >>> import weft
    >>> from weft import models
    >>> config = models.read_config({"model_type": "gpt2", "vocab_size": 10, "n_embd": 8, "n_head": 2, "n_layer": 3})
    >>> _, adapters = models.add_lora(models.init(config, weft.random.key(0)), weft.random.key(1), rank=2)
    >>> sorted(adapters)[0], adapters["layers.0.0.attention.query"]["down"].shape
    ('layers.0.0.attention.query', (3, 2, 8))
    """
    adapters: dict[str, Any] = {}
    pattern = re.compile(targets)
    for name, node in _projections(params, ""):
        if pattern.search(name):
            *outer, rows, columns = node["weight"].shape
            own = random.fold_in(key, len(adapters))
            dtype = node["weight"].dtype
            adapters[name] = {
                "down": (random.normal(own, (*outer, rank, columns)) * (alpha / rank / columns**0.5)).astype(dtype),
                "up": wnp.zeros((*outer, rows, rank), dtype),
            }
    if not adapters:
        raise ArgumentError("targets must match the name of a projection.", received=repr(targets))
    return set_lora(params, adapters), adapters


def _projections(node: Any, name: str) -> Iterable[tuple[str, Any]]:
    """Yield the nodes of a tree that have a matrix, with their dotted names."""
    if isinstance(node, dict):
        if "weight" in node and node["weight"].ndim >= 2:
            yield name, node
        children: Iterable[tuple[Any, Any]] = node.items()
    else:
        children = enumerate(node) if isinstance(node, (list, tuple)) else ()
    for key, child in children:
        yield from _projections(child, f"{name}.{key}".removeprefix("."))


def set_lora(params: Any, adapters: dict[str, Any]) -> Any:
    """Return parameters with these adapters.

    Args:
        params: the parameters of a model, with adapters or without.
        adapters: those of `add_lora`, by name.

    Returns:
        A tree like `params`; the arrays are shared.
    """

    def visit(node: Any, name: str) -> Any:
        if isinstance(node, (list, tuple)):
            return [visit(child, f"{name}.{i}".removeprefix(".")) for i, child in enumerate(node)]
        if not isinstance(node, dict):
            return node
        found = {key: visit(child, f"{name}.{key}".removeprefix(".")) for key, child in node.items() if key != "lora"}
        return found | {"lora": adapters[name]} if name in adapters else found

    return visit(params, "")


def merge_lora(params: Any) -> Any:
    """Return parameters whose adapters are added to the matrices, as `save` needs them.

    Args:
        params: parameters with adapters.

    Returns:
        Parameters without adapters that compute the same. Quantized matrices that had one are floating-point numbers.
    """
    if isinstance(params, (list, tuple)):
        return [merge_lora(child) for child in params]
    if not isinstance(params, dict):
        return params
    found = {key: merge_lora(child) for key, child in params.items() if key != "lora"}
    if "lora" in params:
        product = wnp.matmul(params["lora"]["up"], params["lora"]["down"])
        weight = params["weight"].dequantize() if isinstance(params["weight"], Quantized) else params["weight"]
        found["weight"] = weight + product.astype(weight.dtype)
    return found


def cast(params: Any, dtype: Any) -> Any:
    """Cast the floating-point arrays of a tree, for a forward pass in a short dtype with parameters in float32.

    Args:
        params: a tree of arrays.
        dtype: the dtype.

    Returns:
        A tree like it.
    """
    return weft.tree.map(lambda x: x.astype(dtype) if wnp.issubdtype(x.dtype, wnp.floating) else x, params)

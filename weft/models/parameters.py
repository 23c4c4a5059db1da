"""Shapes of parameters, their place in the tree of a model, and random values for them.

A *path* is a dotted name in which each layer has a number: `layers.3.attention.query.weight`. In the tree the layers
that one loop runs are stacked: `params["layers"][segment][place]` holds arrays whose first axis is the repetition.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

import weft.numpy as wnp
from weft import random
from weft.models.config import Config, Kind, Tower
from weft.models.quantization import leaves as list_weights

_LAYER = re.compile(r"^(?:(?P<tower>[a-z]+)\.)?layers\.(?P<layer>\d+)\.(?P<rest>.+)$")
_EXPERT = re.compile(r"^(?P<head>.*\.experts)\.(?P<expert>\d+)\.(?P<name>\w+)$")


class Leaf(NamedTuple):
    """One array of the tree: its keys, its shape, and for each of its parts the path and the index that it fills."""

    keys: tuple[str | int, ...]
    shape: tuple[int, ...]
    parts: tuple[tuple[tuple[int, ...], str], ...]

    @property
    def name(self) -> str:
        """The keys as one dotted name."""
        return ".".join(map(str, self.keys))


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Return the shape of each parameter of a model by path.

    Args:
        config: the description of the model.

    Returns:
        A dict from paths to shapes; each layer and each expert has its own.
    """
    found: dict[str, tuple[int, ...]] = {}
    for name, tower in config.towers.items():
        found |= {f"{name}.{path}" if name else path: shape for path, shape in _tower(tower)}
    return found | dict(config.extras)


def _tower(tower: Tower) -> Iterator[tuple[str, tuple[int, ...]]]:
    width = tower.width
    if tower.vocabulary:
        yield "tokens.weight", (tower.vocabulary, width)
    if tower.patch:
        yield from _linear("patches", (width, tower.channels, tower.patch, tower.patch), tower.patch_bias)
    if tower.class_token:
        yield "class_token", (width,)
    if tower.bins:
        yield from _linear("first_convolution", (width, tower.bins, 3), True)
        yield from _linear("second_convolution", (width, width, 3), True)
    if tower.positions:
        yield "positions.weight", (tower.positions + tower.position_offset, width)
    if tower.types:
        yield "types.weight", (tower.types, width)
    if tower.embedding_norm:
        yield from _norm("embedding_norm", width, tower)
    if tower.buckets:
        yield "buckets.weight", (tower.buckets, tower.heads)
    for number, kind in enumerate(tower.kinds):
        yield from ((f"layers.{number}.{path}", shape) for path, shape in _layer(tower, kind))
    if tower.final_norm:
        yield from _norm("norm", width, tower)


def _norm(path: str, width: int, tower: Tower) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{path}.weight", (width,)
    if "norm" in tower.biases:
        yield f"{path}.bias", (width,)


def _linear(path: str, shape: tuple[int, ...], has_bias: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{path}.weight", shape
    if has_bias:
        yield f"{path}.bias", shape[:1]


def _layer(tower: Tower, kind: Kind) -> Iterator[tuple[str, tuple[int, ...]]]:
    blocks = ["attention", *(["cross"] if tower.cross else []), "mlp"]
    for block in blocks:
        if not (tower.parallel and block == "mlp"):
            yield from _norm(f"{block}.norm", tower.width, tower)
        if tower.after_norms:
            yield from _norm(f"{block}.after", tower.width, tower)
    for block in blocks[:-1]:
        sizes = {"query": tower.heads, "key": tower.key_heads, "value": tower.key_heads}
        for name, heads in sizes.items():
            yield from _linear(f"{block}.{name}", (heads * tower.head_size, tower.width), name in tower.biases)
        yield from _linear(f"{block}.output", (tower.width, tower.heads * tower.head_size), "output" in tower.biases)
        if tower.query_norm and block == "attention":
            yield from _norm("attention.query_norm", tower.head_size, tower)
            yield from _norm("attention.key_norm", tower.head_size, tower)
    if not kind.experts:
        yield from _feed_forward("mlp", tower.width, tower.hidden, tower)
        return
    yield "mlp.router.weight", (kind.experts, tower.width)
    for expert in range(kind.experts):
        for name in ("gate", "up"):
            yield f"mlp.experts.{expert}.{name}", (tower.width, tower.expert_hidden)
        yield f"mlp.experts.{expert}.down", (tower.expert_hidden, tower.width)
    if tower.shared_hidden:
        yield from _feed_forward("mlp.shared", tower.width, tower.shared_hidden, tower)
        yield "mlp.shared_gate.weight", (1, tower.width)


def _feed_forward(path: str, width: int, hidden: int, tower: Tower) -> Iterator[tuple[str, tuple[int, ...]]]:
    for name in ("gate", "up") if tower.gated else ("up",):
        yield from _linear(f"{path}.{name}", (hidden, width), name in tower.biases)
    yield from _linear(f"{path}.down", (width, hidden), "down" in tower.biases)


# ------------------------------------------------------------------------------------------------------------- the tree


def leaves(config: Config) -> list[Leaf]:
    """List the arrays of the tree of a model, with the paths whose values they stack.

    Args:
        config: the description of the model.

    Returns:
        A list of `Leaf`.
    """
    parts: dict[tuple[str | int, ...], list[tuple[tuple[int, ...], str]]] = {}
    sizes: dict[tuple[str | int, ...], tuple[int, ...]] = {}
    for path, shape in shapes(config).items():
        keys, index = locate(path, config)
        parts.setdefault(keys, []).append((index, path))
        sizes[keys] = shape
    found = []
    for keys, pieces in parts.items():
        outer = tuple(1 + max(numbers) for numbers in zip(*(index for index, _ in pieces), strict=True))
        found.append(Leaf(keys, (*outer, *sizes[keys]), tuple(pieces)))
    return found


def locate(path: str, config: Config) -> tuple[tuple[str | int, ...], tuple[int, ...]]:
    """Return the keys of the array that holds a path, and the index of the path in it."""
    keys: tuple[str | int, ...] = ()
    index: tuple[int, ...] = ()
    rest = path
    if match := _LAYER.match(path):
        tower, layer, rest = match["tower"] or "", int(match["layer"]), match["rest"]
        keys = (tower,) if tower else ()
        for number, segment in enumerate(config.towers[tower].segments):
            place = layer - segment.start
            if 0 <= place < len(segment.kinds) * segment.repeats:
                keys += ("layers", number, place % len(segment.kinds))
                index = (place // len(segment.kinds),)
    if match := _EXPERT.match(rest):
        return (*keys, *match["head"].split("."), match["name"]), (*index, int(match["expert"]))
    return (*keys, *rest.split(".")), index


def build(config: Config, value: Callable[[Leaf], Any]) -> dict[str, Any]:
    """Build the tree of a model.

    Args:
        config: the description of the model.
        value: a function from a `Leaf` to its array.

    Returns:
        Nested dicts, with a list of segments and a list of places under "layers".
    """
    tree: dict[str | int, Any] = {}
    for leaf in leaves(config):
        node: Any = tree
        for key in leaf.keys[:-1]:
            node = node.setdefault(key, {})
        node[leaf.keys[-1]] = value(leaf)
    return _lists(tree)


def _lists(node: Any) -> Any:
    """Replace dicts whose keys count from 0 with lists."""
    if not isinstance(node, dict):
        return node
    if node and {str(key) for key in node} == {str(i) for i in range(len(node))}:
        return [_lists(value) for _, value in sorted(node.items(), key=lambda item: int(item[0]))]
    return {key: _lists(value) for key, value in node.items()}


def flat(params: Mapping[str, Any], config: Config) -> dict[str, Any]:
    """Return the parameters by path, one for each layer and expert: the inverse of stacking.

    Args:
        params: the tree of a model.
        config: its description.

    Returns:
        A dict from paths to functions that return the value.
    """
    found: dict[str, Any] = {}
    for leaf in leaves(config):
        node: Any = params
        for key in leaf.keys:
            node = node[int(key) if isinstance(node, (list, tuple)) else key]
        for index, path in leaf.parts:
            found[path] = _part(node, index)
    return found


def _part(array: Any, index: tuple[int, ...]) -> Callable[[], np.ndarray]:
    return lambda: np.asarray(array[index] if index else array)


def init(config: Config, key: Any, dtype: Any = wnp.float32, scale: float = 0.02) -> dict[str, Any]:
    """Return random parameters: normal matrices, norms of one, and biases of zero.

    Args:
        config: the description of the model.
        key: a random key.
        dtype: the dtype of the parameters.
        scale: the standard deviation of matrices; residual projections have it divided by the root of their number.

    Returns:
        The tree of parameters.

    >>> import weft
    >>> from weft import models
    >>> fields = {"model_type": "qwen3", "vocab_size": 32, "hidden_size": 8, "intermediate_size": 16,
    ...     "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4}
    >>> params = models.init(models.read_config(fields), weft.random.key(0))
    >>> params["layers"][0][0]["attention"]["query"]["weight"].shape
    (2, 8, 8)
    """
    depth = max([1, *(2 * len(tower.kinds) for tower in config.towers.values())])
    keys = iter(random.split(key, len(leaves(config))))

    def value(leaf: Leaf) -> Any:
        own = next(keys)
        if _is_norm(leaf.keys):
            has_offset = any(tower.unit_offset for tower in config.towers.values())
            return wnp.zeros(leaf.shape, dtype) if has_offset else wnp.ones(leaf.shape, dtype)
        if leaf.keys[-1] in ("bias", "mean"):
            return wnp.zeros(leaf.shape, dtype)
        size = scale / math.sqrt(depth) if "output" in leaf.keys or "down" in leaf.keys else scale
        return (random.normal(own, leaf.shape) * size).astype(dtype)

    return build(config, value)


def _is_norm(keys: tuple[str | int, ...]) -> bool:
    if keys[-1] in ("variance", "layer_scale"):
        return True
    return keys[-1] == "weight" and ("norm" in str(keys[-2]) or keys[-2] == "after")


def count_parameters(params: Any) -> int:
    """Count the numbers in a tree of parameters.

    Args:
        params: a tree of arrays; a quantized matrix counts as the matrix.

    Returns:
        The sum of their sizes.

    >>> import weft.numpy as wnp
    >>> from weft import models
    >>> models.count_parameters({"a": wnp.ones((2, 3)), "b": wnp.ones(4)})
    10
    """
    return sum(math.prod(leaf.shape) for leaf in list_weights(params))

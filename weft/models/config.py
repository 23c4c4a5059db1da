"""Descriptions of models: the numbers and choices that `weft.models` reads from a `config.json`.

A model has one or more towers (a text model one, CLIP two, T5 an encoder and a decoder). A tower is a transformer:
embeddings, layers, and a last norm. Everything that differs between the families of transformers is a field here, so
that `transformer.py` is one program for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from weft.errors import ArgumentError


class Rope(NamedTuple):
    """Rotary position embedding: one frequency for each pair of rotated elements, and a factor of cosine and sine."""

    frequencies: tuple[float, ...]
    factor: float = 1.0


class Kind(NamedTuple):
    """Properties in which the layers of one tower may differ: attention window, rotary embedding, experts."""

    window: int | None = None
    rope: Rope | None = None
    experts: int = 0


class Segment(NamedTuple):
    """Layers that one loop runs: `repeats` times the layers of `kinds`; the first of them is layer `start`."""

    start: int
    kinds: tuple[Kind, ...]
    repeats: int


@dataclass(frozen=True, kw_only=True)
class Tower:
    """Shape and choices of one transformer.

    Args:
        width: size of the residual stream.
        heads, key_heads: numbers of query heads, and of key and value heads.
        head_size: size of each head.
        hidden: width of the feed-forward layer.
        kinds: a `Kind` for each layer.
        norm: "rms" or "layer".
        epsilon: number that norms add to the variance.
        unit_offset: whether the norms multiply by 1 + weight.
        norm_last: whether a norm follows the sum with the residual instead of preceding the block.
        after_norms: whether a second norm follows each block, before the sum.
        parallel: whether attention and feed-forward layer read the same norm and are added together.
        activation: name of the activation.
        gated: whether the feed-forward layer multiplies two projections.
        causal: whether a position attends only to itself and earlier ones.
        scale: factor of the attention logits.
        attention_cap: bound that attention logits approach by tanh.
        biases: names of the projections and norms that have a bias.
        query_norm: whether queries and keys are normalized for each head.
        cross: whether layers also attend to the states of an encoder.
        buckets, distance: number of buckets of relative positions, and the distance at which the last one begins.
        experts_per_token, expert_hidden, shared_hidden: experts that a token visits, and widths of theirs and of the
            shared one.
        renormalize: whether the weights of a token's experts are divided by their sum.
        vocabulary, positions, types: rows of the tables of tokens, learned positions and token types; 0 for none.
        position_offset: row of the first position.
        fixed_positions: whether positions are a table of sines that is stored as a parameter.
        embedding_scale: factor of the token embeddings.
        embedding_norm: whether a norm follows the embeddings.
        patch, image, channels: sizes of patches and of images, for images.
        class_token: whether a learned token precedes the patches.
        patch_bias: whether the patch projection has a bias.
        bins: mel bins of the convolutions before the layers, for sound.
        final_norm: whether a norm follows the last layer.
    """

    width: int
    heads: int
    key_heads: int
    head_size: int
    hidden: int
    kinds: tuple[Kind, ...]
    norm: str = "rms"
    epsilon: float = 1e-6
    unit_offset: bool = False
    norm_last: bool = False
    after_norms: bool = False
    parallel: bool = False
    activation: str = "silu"
    gated: bool = True
    causal: bool = True
    scale: float = 1.0
    attention_cap: float | None = None
    biases: frozenset[str] = frozenset()
    query_norm: bool = False
    cross: bool = False
    buckets: int = 0
    distance: int = 128
    experts_per_token: int = 0
    expert_hidden: int = 0
    shared_hidden: int = 0
    renormalize: bool = False
    vocabulary: int = 0
    positions: int = 0
    types: int = 0
    position_offset: int = 0
    embedding_scale: float = 1.0
    embedding_norm: bool = False
    patch: int = 0
    image: int = 0
    channels: int = 3
    class_token: bool = False
    patch_bias: bool = True
    bins: int = 0
    final_norm: bool = True

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Loops that run the layers: repetitions of the shortest period of kinds, then the layers that are left."""
        kinds, count = self.kinds, len(self.kinds)
        periods = range(1, count + 1)
        period = next((p for p in periods if all(kinds[i] == kinds[i % p] for i in range(count))), 1)
        repeats = count // period if count else 0
        found = [Segment(0, kinds[:period], repeats)] if repeats else []
        if rest := count - repeats * period:
            found.append(Segment(count - rest, kinds[count - rest :], 1))
        return tuple(found)


@dataclass(frozen=True)
class Config:
    """Description of a model.

    Args:
        family: the `model_type` of the `config.json`.
        task: what the model computes: "next token", "token logits", "labels", "token labels", "features", "image
            labels", "image features", "similarity" or "sequence".
        towers: the transformers by name; a model with one has the name "".
        extras: shapes of the parameters outside of the towers, by path.
        options: further choices that only some families have.
        context: the largest number of positions, or None.
        raw: the fields of the `config.json`.
    """

    family: str
    task: str
    towers: Mapping[str, Tower]
    extras: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    context: int | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)

    def get(self, name: str, default: Any = None) -> Any:
        """Return an option.

        Args:
            name: its name.
            default: the value for a model without it.

        Returns:
            The value.
        """
        return self.options.get(name, default)

    @property
    def tower(self) -> Tower:
        """The tower that reads tokens or images, or that generates text if there are two."""
        towers = self.towers
        return towers.get("decoder") or towers.get("") or next(iter(towers.values()))

    @property
    def vocabulary(self) -> int:
        """The number of tokens, or 0 for a model of images."""
        return max([tower.vocabulary for tower in self.towers.values()] + [self.extras.get("tokens.weight", (0,))[0]])


class Fields:
    """Fields of a `config.json`, with an error that names a missing one."""

    def __init__(self, raw: Mapping[str, Any], where: str) -> None:
        self.raw = raw
        self.where = where

    def __getitem__(self, name: str) -> Any:
        if self.raw.get(name) is None:
            raise ArgumentError(f"{self.where} of a model of this type must have the field {name!r}.")
        return self.raw[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field, or a default if it is missing or null."""
        value = self.raw.get(name)
        return default if value is None else value

    def first(self, names: Sequence[str], default: Any = None) -> Any:
        """Return the first field of several names that is present."""
        return next((self.raw[name] for name in names if self.raw.get(name) is not None), default)

    def part(self, name: str) -> Fields:
        """Return the fields of a nested description."""
        return Fields(self.get(name, {}), f"{name} in {self.where}")

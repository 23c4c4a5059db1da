"""Transforms of samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.data.order import sample_generator
from weft.errors import ArgumentTypeError


@dataclass(frozen=True)
class Map:
    """A transform that replaces a sample by `function(sample)`. A plain function is equivalent.

    >>> from weft.data import Loader
    >>> list(Loader(range(4), batch_size=2, transforms=[Map(lambda i: i * 10)]))
    [array([ 0, 10]), array([20, 30])]
    """

    function: Callable[[Any], Any]


@dataclass(frozen=True)
class RandomMap:
    """A transform that replaces a sample by `function(sample, generator)`.

    The `numpy.random.Generator` depends on the seed of the loader, the epoch and the index of the sample, not on
    workers.

    >>> from weft.data import Loader
    >>> noisy = RandomMap(lambda x, generator: x + generator.normal())
    >>> a, b = (list(Loader(range(4), 2, transforms=[noisy], workers=w)) for w in (0, 2))
    >>> bool(np.array_equal(a, b))
    True
    """

    function: Callable[[Any, np.random.Generator], Any]


@dataclass(frozen=True)
class Filter:
    """A transform that drops samples for which `predicate(sample)` is false. Following samples fill the batches.

    >>> from weft.data import Loader
    >>> list(Loader(range(6), batch_size=2, transforms=[Filter(lambda i: i % 3)]))
    [array([1, 2]), array([4, 5])]
    """

    predicate: Callable[[Any], Any]


Transform = Map | RandomMap | Filter
DROPPED = object()


def as_transforms(transforms: Sequence[Any]) -> tuple[Transform, ...]:
    """Validate transforms, and convert plain functions to `Map`."""
    for transform in transforms:
        if not callable(transform) and not isinstance(transform, (Map, RandomMap, Filter)):
            raise ArgumentTypeError(
                "A transform must be a function, a Map, a RandomMap or a Filter.", received=repr(transform)
            )
    return tuple(t if isinstance(t, (Map, RandomMap, Filter)) else Map(t) for t in transforms)


def apply_transforms(sample: Any, transforms: tuple[Transform, ...], seed: int, epoch: int, index: int) -> Any:
    """Apply all transforms to a sample; return DROPPED if a filter drops it."""
    for i, transform in enumerate(transforms):
        match transform:
            case Map(function):
                sample = function(sample)
            case RandomMap(function):
                sample = function(sample, sample_generator(seed, epoch, index, i))
            case Filter(predicate):
                if not predicate(sample):
                    return DROPPED
    return sample

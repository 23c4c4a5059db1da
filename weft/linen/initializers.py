"""Initial values of parameters, each called as `initializer(key, shape, dtype)`."""

from __future__ import annotations

from weft.errors import suggest as _suggest
from weft.nn.initializers import (
    Initializer,
    constant,
    delta_orthogonal,
    glorot_normal,
    glorot_uniform,
    he_normal,
    he_uniform,
    kaiming_normal,
    kaiming_uniform,
    lecun_normal,
    lecun_uniform,
    normal,
    ones,
    orthogonal,
    truncated_normal,
    uniform,
    variance_scaling,
    xavier_normal,
    xavier_uniform,
    zeros,
)

__all__ = [
    "Initializer",
    "constant",
    "delta_orthogonal",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "kaiming_normal",
    "kaiming_uniform",
    "lecun_normal",
    "lecun_uniform",
    "normal",
    "ones",
    "ones_init",
    "orthogonal",
    "truncated_normal",
    "uniform",
    "variance_scaling",
    "xavier_normal",
    "xavier_uniform",
    "zeros",
    "zeros_init",
]


def zeros_init() -> Initializer:
    """The initializer that returns zeros.

    Returns:
        A function of a key, a shape and a dtype.

    >>> from weft import random
    >>> from weft import linen
    >>> linen.initializers.zeros_init()(random.key(0), (2,))
    Array([0., 0.], dtype=float32)
    """
    return zeros


def ones_init() -> Initializer:
    """The initializer that returns ones.

    Returns:
        A function of a key, a shape and a dtype.

    >>> from weft import random
    >>> from weft import linen
    >>> linen.initializers.ones_init()(random.key(0), (2,))
    Array([1., 1.], dtype=float32)
    """
    return ones


_suggest(__name__)

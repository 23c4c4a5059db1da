"""Initializers of parameters, functions `initializer(key, shape, dtype)`."""

from __future__ import annotations

from weft.errors import suggest as _suggest
from weft.nn.initializers import (
    Initializer as Initializer,
    constant as constant,
    delta_orthogonal as delta_orthogonal,
    glorot_normal as glorot_normal,
    glorot_uniform as glorot_uniform,
    he_normal as he_normal,
    he_uniform as he_uniform,
    kaiming_normal as kaiming_normal,
    kaiming_uniform as kaiming_uniform,
    lecun_normal as lecun_normal,
    lecun_uniform as lecun_uniform,
    normal as normal,
    ones as ones,
    orthogonal as orthogonal,
    truncated_normal as truncated_normal,
    uniform as uniform,
    variance_scaling as variance_scaling,
    xavier_normal as xavier_normal,
    xavier_uniform as xavier_uniform,
    zeros as zeros,
)


def zeros_init() -> Initializer:
    """Return the initializer of zeros.

    Returns:
        A function of a key, a shape and a dtype.

    >>> from weft import random
    >>> from weft import linen
    >>> linen.initializers.zeros_init()(random.key(0), (2,))
    Array([0., 0.], dtype=float32)
    """
    return zeros


def ones_init() -> Initializer:
    """Return the initializer of ones.

    Returns:
        A function of a key, a shape and a dtype.

    >>> from weft import random
    >>> from weft import linen
    >>> linen.initializers.ones_init()(random.key(0), (2,))
    Array([1., 1.], dtype=float32)
    """
    return ones


_suggest(__name__)

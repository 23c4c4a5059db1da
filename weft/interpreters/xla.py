"""What `jax.interpreters.xla` has that means something here: running a primitive on arrays, and which objects of other
libraries may enter programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base import conversion
from weft.base.publish import publish as _publish
from weft.core import pytype_aval_mappings as pytype_aval_mappings
from weft.ir.context import EVALUATION
from weft.ir.primitive import Primitive
from weft.runtime.backend import Backend as Backend

# How objects of a class become arrays of canonical dtype. A class of `pytype_aval_mappings` needs no entry: NumPy
# converts its objects.
canonicalize_dtype_handlers: dict[type, Callable[[Any], Any]] = {
    kind: conversion.canonical_array for kind in (np.ndarray, np.generic, bool, int, float, complex)
}


def apply_primitive(prim: Primitive, *args: Any, **params: Any) -> Any:
    """The results of a primitive on concrete arrays, now, whatever is being traced."""
    return prim.bind_with_trace(EVALUATION, args, params)


_publish(__name__)

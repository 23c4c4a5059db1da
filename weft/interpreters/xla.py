"""Evaluation of primitives on arrays, and registration of array types of other libraries, under the names of
`jax.interpreters.xla`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base import conversion
from weft.base.publish import publish as _publish
from weft.core import pytype_aval_mappings as pytype_aval_mappings
from weft.ir.context import EVALUATION
from weft.ir.primitive import Primitive
from weft.runtime.execution_backend import ExecutionBackend

Backend = ExecutionBackend
# How objects of a class become arrays of canonical dtype. A class of `pytype_aval_mappings` needs no entry: NumPy
# converts its objects.
canonicalize_dtype_handlers: dict[type, Callable[[Any], Any]] = {
    kind: conversion.canonical_array for kind in (np.ndarray, np.generic, bool, int, float, complex)
}


def apply_primitive(prim: Primitive, *args: Any, **params: Any) -> Any:
    """Evaluate a primitive on concrete arrays at once, whatever the current trace."""
    return prim.bind_with_trace(EVALUATION, args, params)


_publish(__name__)

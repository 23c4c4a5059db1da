"""Sparse arrays from nothing: empty ones, identities, random ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import weft.numpy as wnp
from weft import random
from weft.base import dtypes
from weft.base.errors import ArgumentError
from weft.experimental.sparse.base import JAXSparse
from weft.experimental.sparse.bcoo import BCOO, split_shape, vmap_batches
from weft.experimental.sparse.bcsr import BCSR
from weft.experimental.sparse.matrices import COO, CSC, CSR

FORMATS: dict[str, Any] = {"bcoo": BCOO, "bcsr": BCSR, "coo": COO, "csr": CSR, "csc": CSC}


def _format(name: str) -> Any:
    if name not in FORMATS:
        raise ArgumentError("There is no such sparse format.", received=f"{name!r}", fix=", ".join(map(repr, FORMATS)))
    return FORMATS[name]


def empty(
    shape: Sequence[int], dtype: Any = None, index_dtype: Any = "int32", sparse_format: str = "bcoo", **kwds: Any
) -> JAXSparse:
    """Return an array of zeros without stored elements.

    Args:
        shape: its shape.
        dtype: of its elements, float32 by default.
        index_dtype: of its indices.
        sparse_format: "bcoo", "bcsr", "coo", "csr" or "csc".
        kwds: options of the format, such as `n_batch`, `n_dense` and `nse`.

        >>> from weft.experimental import sparse
        >>> sparse.empty((2, 3))
        BCOO(float32[2, 3], nse=0)
    """
    return _format(sparse_format)._empty(tuple(shape), dtype=dtype, index_dtype=index_dtype, **kwds)


def eye(
    N: int,
    M: int | None = None,
    k: int = 0,
    dtype: Any = None,
    index_dtype: Any = "int32",
    sparse_format: str = "bcoo",
    **kwds: Any,
) -> JAXSparse:
    """Return a sparse array with ones on a diagonal.

    Args:
        N, M: the number of rows, and of columns, by default as many.
        k: which diagonal: 0 is the main one, positive ones are above it.
        dtype, index_dtype: of elements and indices.
        sparse_format: "bcoo", "bcsr", "coo", "csr" or "csc".
        kwds: options of the format, such as `n_batch`.
    """
    M = N if M is None else M
    return _format(sparse_format)._eye(N, M, k, dtype=dtype, index_dtype=index_dtype, **kwds)


def random_bcoo(
    key: Any,
    shape: Sequence[int],
    *,
    dtype: Any = float,
    indices_dtype: Any = None,
    nse: float = 0.2,
    n_batch: int = 0,
    n_dense: int = 0,
    unique_indices: bool = True,
    sorted_indices: bool = False,
    generator: Callable[..., Any] = random.uniform,
    **kwds: Any,
) -> BCOO:
    """Return a random BCOO.

    Args:
        key: a random key.
        shape: the shape of the array.
        dtype, indices_dtype: of elements and indices.
        nse: how many elements are specified in each batch: a number, or below 1 a fraction of the sparse elements.
        n_batch, n_dense: how many leading dimensions are batches, and how many trailing ones dense.
        unique_indices: whether no index is drawn twice.
        sorted_indices: whether indices are in order.
        generator: what draws elements, a function of a key, a shape and a dtype.
        kwds: further arguments of the generator.
    """
    batch, own, dense = split_shape(shape, n_batch, n_dense)
    if not nse >= 0:
        raise ArgumentError("random_bcoo: nse must be at least 0.", received=f"{nse}")
    total = math.prod(own)
    count = math.ceil(nse * total) if nse < 1 else int(nse)
    if unique_indices and count > total:
        raise ArgumentError(
            "random_bcoo: there are not that many different indices.",
            received=f"nse={count} of {total} elements",
            fix="unique_indices=False",
        )
    data_key, index_key = random.split(key)
    dtype = dtypes.canonicalize_dtype(dtype)
    indices_dtype = dtypes.canonicalize_dtype(indices_dtype or int)

    def one(key: Any) -> Any:
        if not own:
            return wnp.zeros((count, 0), indices_dtype)
        if unique_indices:
            flat = random.choice(key, total, shape=(count,), replace=False)
        else:
            flat = random.randint(key, (count,), 0, max(total, 1))
        return wnp.stack(wnp.unravel_index(flat, own), axis=-1).astype(indices_dtype)

    keys = random.split(index_key, math.prod(batch)).reshape(batch) if batch else index_key
    indices = vmap_batches(one, n_batch)(keys)
    data = generator(data_key, (*batch, count, *dense), dtype, **kwds)
    found = BCOO((data, indices), shape=shape, unique_indices=unique_indices)
    return found.sort_indices() if sorted_indices else found

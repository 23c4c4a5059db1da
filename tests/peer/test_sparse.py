"""Sparse arrays against JAX: indices and data of results, and their derivatives."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import sparse as jax_sparse

import weft
import weft.numpy as wnp
from weft.experimental import sparse as weft_sparse

X = (np.arange(24) % 5 * (np.arange(24) % 3 > 0)).astype(np.float32).reshape(2, 3, 4)
Y = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 4, 3)


def programs(np_: Any, s: Any, transform: Any) -> dict[str, Any]:
    mat = s.BCOO.fromdense
    return {
        "fromdense": lambda x, y: mat(x[0]),
        "batch": lambda x, y: mat(x, n_batch=1),
        "dense": lambda x, y: mat(x, n_dense=1),
        "padding": lambda x, y: mat(x, nse=24),
        "product": lambda x, y: mat(x[0]) @ y[0],
        "product from the left": lambda x, y: y[0] @ mat(x[0]),
        "batched product": lambda x, y: s.bcoo_dot_general(
            mat(x, n_batch=1), y, dimension_numbers=(((2,), (1,)), ((0,), (0,)))
        ),
        "two sparse": lambda x, y: s.todense(mat(x[0]) @ mat(x[1].T)),
        "transpose": lambda x, y: mat(x[0]).T.sort_indices(),
        "sum": lambda x, y: s.bcoo_reduce_sum(mat(x, n_batch=1), axes=(2,)),
        "sum of batches": lambda x, y: s.bcoo_reduce_sum(mat(x, n_batch=1), axes=(0,)),
        "duplicates": lambda x, y: s.bcoo_reduce_sum(mat(x), axes=(0,)).sum_duplicates(),
        "reshape": lambda x, y: s.bcoo_reshape(mat(x), new_sizes=(4, 6)),
        "slice": lambda x, y: s.bcoo_slice(mat(x), start_indices=(0, 1, 0), limit_indices=(2, 3, 3)).todense(),
        "concatenate": lambda x, y: s.bcoo_concatenate([mat(x), mat(x)], dimension=1),
        "layout": lambda x, y: s.bcoo_update_layout(mat(x, n_batch=1), n_batch=0).todense(),
        "multiply": lambda x, y: s.bcoo_multiply_dense(mat(x), x + 1),
        "extract": lambda x, y: s.bcoo_extract(mat(x), x + 2),
        "sparsify": lambda x, y: s.sparsify(lambda m: np_.sin(m) * 2 - m)(mat(x[0])),
        "sampled": lambda x, y: s.bcoo_dot_general_sampled(
            x[0], y[0], mat(x[0] @ y[0]).indices, dimension_numbers=(((1,), (0,)), ((), ()))
        ),
        "compressed": lambda x, y: s.BCSR.fromdense(x, n_batch=1),
        "eye": lambda x, y: s.eye(3, 5, 1),
        "gradient": lambda x, y: s.grad(lambda m: ((m @ y[0]) ** 2).sum())(mat(x[0])),
        "jacobian": lambda x, y: s.jacrev(lambda m: m @ y[0])(mat(x[0])),
        "solve": lambda x, y: s.linalg.spsolve(
            *s.CSR.fromdense(np_.eye(3) * 3 + x[0][:, :3]).tree_flatten()[0], y[0, 0]
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", list(programs(wnp, weft_sparse, weft)))
def test_results(name: str) -> None:
    import jax.experimental.sparse.linalg

    expected = programs(jnp, jax_sparse, jax)[name](jnp.asarray(X), jnp.asarray(Y))
    found = programs(wnp, weft_sparse, weft)[name](wnp.asarray(X), wnp.asarray(Y))
    assert repr(expected) == repr(found) or not isinstance(found, weft_sparse.JAXSparse)
    for a, b in zip(weft.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(*np.broadcast_arrays(a, b), rtol=1e-5, atol=1e-6)  # batches may be stored once

"""Products of elementary reflectors, which are stored below the diagonal of a matrix as LAPACK does."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.ir.primitive import Sample, primitive
from weft.primitives.elementwise.arithmetic import add, mul, sub
from weft.primitives.families import Composite, fail
from weft.primitives.linalg.cholesky import general
from weft.primitives.linalg.matrix import adjoint, as_columns, identity_like, matmul, resize, triangle
from weft.primitives.linalg.triangular import triangular_solve


def check_reflectors(name: str, a: Any, taus: Any) -> None:
    if a.ndim < 2 or taus.shape[:-1] != a.shape[:-2] or taus.shape[-1] > min(a.shape[-2:]):
        raise fail(
            f"{name} got reflectors of shape {a.shape} and factors of shape {taus.shape}.",
            fix="give (..., m, n) and (..., k) with k at most m and n",
        )


def block_form(a: Any, taus: Any) -> tuple[Any, Any]:
    """Return V and T such that the product of the reflectors is 1 − V T Vᴴ."""
    v = triangle(resize(a, a.shape[-2], taus.shape[-1]), lower=True, offset=-1)
    v = add(v, identity_like(v))
    # T = (1 + D S)⁻¹ D with D = diag(taus) and S the part of VᴴV above the diagonal.
    above = triangle(matmul(adjoint(v), v), lower=False, offset=1)
    scale = as_columns(taus, above.shape)
    system = mul(scale, above)
    right = mul(scale, identity_like(above))
    t = triangular_solve(
        system, right, left_side=True, lower=False, transpose_a=False, conjugate_a=False, unit_diagonal=True
    )
    return v, t


@primitive
class householder_product(Composite):
    """First columns of the product of the reflectors that are stored below the diagonal of the first operand, with
    the factors in the second."""

    def decompose(self, a: Any, taus: Any) -> Any:
        check_reflectors(self.name, a, taus)
        v, t = block_form(a, taus)
        start = identity_like(a)
        return sub(start, matmul(v, matmul(t, matmul(adjoint(v), start))))

    def samples(self) -> Any:
        yield Sample(general(3, 3), np.array([0.5, 1.25, 0.75], np.float32))
        yield Sample(general(2, 4, 2), np.full((2, 2), 0.5, np.float32))

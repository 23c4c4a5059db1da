"""Linear algebra with NumPy's names: decompositions, systems of equations, norms, products.

Matrices are in the last two axes, and every function works over the leading ones. Everything is differentiable where
the mathematical function is.
"""

from weft.base.publish import publish as _publish
from weft.numpy.linalg.decompositions import (
    cholesky as cholesky,
    eig as eig,
    eigh as eigh,
    eigvals as eigvals,
    eigvalsh as eigvalsh,
    qr as qr,
    svd as svd,
    svdvals as svdvals,
)
from weft.numpy.linalg.determinants import det as det, slogdet as slogdet
from weft.numpy.linalg.norms import cond as cond, matrix_norm as matrix_norm, norm as norm, vector_norm as vector_norm
from weft.numpy.linalg.products import (
    cross as cross,
    diagonal as diagonal,
    matmul as matmul,
    matrix_transpose as matrix_transpose,
    multi_dot as multi_dot,
    outer as outer,
    tensordot as tensordot,
    trace as trace,
    vecdot as vecdot,
)
from weft.numpy.linalg.solving import (
    inv as inv,
    lstsq as lstsq,
    matrix_power as matrix_power,
    matrix_rank as matrix_rank,
    pinv as pinv,
    solve as solve,
    tensorinv as tensorinv,
    tensorsolve as tensorsolve,
)

_publish(__name__)

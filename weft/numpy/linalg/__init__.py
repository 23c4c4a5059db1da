"""Linear algebra with NumPy's names: decompositions, systems of equations, norms, products.

Matrices are in the last two axes, and every function works over the leading ones. Everything is differentiable where
the mathematical function is.
"""

from weft.base.publish import publish as _publish
from weft.numpy.linalg.decompositions import (
    cholesky,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    qr,
    svd,
    svdvals,
)
from weft.numpy.linalg.determinants import det, slogdet
from weft.numpy.linalg.norms import cond, matrix_norm, norm, vector_norm
from weft.numpy.linalg.products import (
    cross,
    diagonal,
    matmul,
    matrix_transpose,
    multi_dot,
    outer,
    tensordot,
    trace,
    vecdot,
)
from weft.numpy.linalg.solving import (
    inv,
    lstsq,
    matrix_power,
    matrix_rank,
    pinv,
    solve,
    tensorinv,
    tensorsolve,
)

__all__ = [
    "cholesky",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "lstsq",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "svdvals",
    "tensordot",
    "tensorinv",
    "tensorsolve",
    "trace",
    "vecdot",
    "vector_norm",
]

_publish(__name__)

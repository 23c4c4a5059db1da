"""NumPy on arrays that can be traced, differentiated and vectorised."""

# contraction.py
from weft.numpy.contraction import (
    dot,
    einsum,
    einsum_path,
    inner,
    kron,
    matmul,
    matvec,
    outer,
    tensordot,
    vdot,
    vecdot,
    vecmat,
)

"""Linear algebra with SciPy's names and arguments, for matrices in the last two axes."""

from weft.base.publish import publish as _publish
from weft.scipy.linalg.factorisations import (
    cho_factor as cho_factor,
    cho_solve as cho_solve,
    cholesky as cholesky,
    det as det,
    eigh as eigh,
    inv as inv,
    lu as lu,
    lu_factor as lu_factor,
    lu_solve as lu_solve,
    qr as qr,
    qr_multiply as qr_multiply,
    solve as solve,
    solve_triangular as solve_triangular,
    svd as svd,
)
from weft.scipy.linalg.functions import (
    eigh_tridiagonal as eigh_tridiagonal,
    expm as expm,
    expm_frechet as expm_frechet,
    funm as funm,
    hessenberg as hessenberg,
    polar as polar,
    rsf2csf as rsf2csf,
    schur as schur,
    solve_sylvester as solve_sylvester,
    sqrtm as sqrtm,
)
from weft.scipy.linalg.special_matrices import (
    block_diag as block_diag,
    circulant as circulant,
    companion as companion,
    convolution_matrix as convolution_matrix,
    dft as dft,
    fiedler as fiedler,
    fiedler_companion as fiedler_companion,
    hadamard as hadamard,
    hankel as hankel,
    helmert as helmert,
    hilbert as hilbert,
    invhilbert as invhilbert,
    invpascal as invpascal,
    leslie as leslie,
    pascal as pascal,
    toeplitz as toeplitz,
)

_publish(__name__)

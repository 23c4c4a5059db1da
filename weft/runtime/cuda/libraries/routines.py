"""Table of the library routines that programs for GPUs call."""

from __future__ import annotations

from weft.compiler.target.cuda.library import attention_groups, convolutions, matmuls
from weft.compiler.target.cuda.library.calls import SOLVER_ROUTINE, TRANSFORM_ROUTINE, TRIANGULAR_ROUTINE
from weft.runtime.cuda.libraries.attention import Attention
from weft.runtime.cuda.libraries.calls import Preparation
from weft.runtime.cuda.libraries.convolution import Convolution
from weft.runtime.cuda.libraries.cublas import Triangular
from weft.runtime.cuda.libraries.cublaslt import Matmul
from weft.runtime.cuda.libraries.cufft import Transform
from weft.runtime.cuda.libraries.cusolver import Solver

ROUTINES: dict[str, Preparation] = {
    matmuls.ROUTINE: Matmul,
    convolutions.ROUTINE: Convolution,
    attention_groups.ROUTINE: Attention,
    TRIANGULAR_ROUTINE: Triangular,
    TRANSFORM_ROUTINE: Transform,
    SOLVER_ROUTINE: Solver,
}

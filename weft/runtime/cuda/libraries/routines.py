"""All routines that programs for GPUs call."""

from __future__ import annotations

from weft.compiler.target.cuda.library import attention, convolutions, matmuls
from weft.runtime.cuda.libraries.attention import Attention
from weft.runtime.cuda.libraries.calls import Preparation
from weft.runtime.cuda.libraries.convolution import Convolution
from weft.runtime.cuda.libraries.cublaslt import Matmul

ROUTINES: dict[str, Preparation] = {
    matmuls.ROUTINE: Matmul,
    convolutions.ROUTINE: Convolution,
    attention.ROUTINE: Attention,
}

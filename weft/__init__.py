"""Weft: NumPy-style functions, differentiated, vectorised, staged and run."""

from weft.ir.context import EVALUATION
from weft.runtime.array import lift as _lift
from weft.runtime.evaluate import evaluate as _evaluate

EVALUATION.evaluate = _evaluate
EVALUATION.lift = _lift

from weft import lax, tree, tree_util  # noqa: E402
from weft.api.differentiate import grad, jvp, linear_transpose, linearize, value_and_grad, vjp  # noqa: E402
from weft.api.jit import clear_caches, jit  # noqa: E402
from weft.api.vectorize import vmap  # noqa: E402
from weft.ir.types import ShapeDtypeStruct  # noqa: E402
from weft.trace.array import Array  # noqa: E402

__all__ = [
    "Array",
    "ShapeDtypeStruct",
    "clear_caches",
    "grad",
    "jit",
    "jvp",
    "lax",
    "linear_transpose",
    "linearize",
    "tree",
    "tree_util",
    "value_and_grad",
    "vjp",
    "vmap",
]

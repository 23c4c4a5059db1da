"""Random programs written for any size (`sizes.py`), exported with symbolic sizes, read back and called: they have the
results of programs for one size, at sizes 0, 1, 2 and larger ones.

`python -m tests.fuzz.exports [--first F] [--count N] [--processes P] [SEED ...]`
"""

from __future__ import annotations

import random
import traceback
from typing import Any

import numpy as onp

import weft
import weft.numpy as np
from tests.fuzz.seeds import main
from tests.fuzz.sizes import MOST_RANK, OPERATIONS, TRANSFORMATIONS
from weft.base.settings import symbolic_sizes
from weft.errors import WeftError
from weft.export import deserialize, export, symbolic_shape

SHAPES = ("n", "n, 3", "3, n", "n, n", "n, n + 1", "2, n, 3", "n, 17", "2*n, 5", "n - 1, 4", "4, n - 1", "n - 1")
SIZES = (1, 2, 3, 9)


def cut(x: Any) -> Any:
    """Small integers in an array of a few dimensions; how many elements it has depends on the sizes."""
    x = x if x.ndim else x[None]
    while x.ndim > MOST_RANK:
        x = x.sum(0)
    return np.clip(x, -3, 3)


def program(seed: int) -> tuple[str, Any, str, str]:
    """Return the text, function, symbolic shape and dtype of a seed."""
    rng = random.Random(seed)
    names = rng.choices(list(OPERATIONS), k=rng.choice((1, 1, 2, 2, 3, 4)))
    around, shape = rng.choice(["none", "none", *TRANSFORMATIONS]), rng.choice(SHAPES)
    is_differentiated = "grad" in around or around == "jvp"
    dtype = rng.choice(["float32", "float32", "bfloat16"] if is_differentiated else ["float32", "float32", "int32"])

    def chain(x: Any) -> Any:
        for name in names:
            x = cut(OPERATIONS[name](x))
        return x

    return f"{around} of {names}, {dtype}[{shape}]", TRANSFORMATIONS[around](chain), shape, dtype


def shape_at(text: str, size: int) -> tuple[int, ...]:
    return tuple(int(eval(d, {"n": size})) for d in text.split(","))


def check_seed(seed: int) -> str:
    """Return the outcome of a seed in words; a failure begins with `failed`."""
    text, function, shape, dtype = program(seed)
    try:
        struct = weft.ShapeDtypeStruct(symbolic_shape(shape), dtype)
        exported = deserialize(export(weft.jit(function))(struct).serialize())
    except (WeftError, ValueError, TypeError, IndexError):  # one program for all sizes there is not
        return "refused at export"
    except Exception:
        return f"failed: {text}\n{traceback.format_exc(limit=-6)}"
    compared = 0
    for size in SIZES:
        x = onp.random.default_rng(seed).integers(-3, 4, shape_at(shape, size)).astype(dtype)
        try:
            with symbolic_sizes("declared"):
                expected = weft.jit(lambda v: function(v))(x)
        except (WeftError, ValueError, TypeError, IndexError):
            continue
        try:
            found = exported.call(x)
        except (WeftError, ValueError) as error:
            if "exported for" in str(error):  # a size of which the function asked, and was told otherwise
                continue
            return f"failed: {text} at {size}\n{traceback.format_exc(limit=-6)}"
        except Exception:
            return f"failed: {text} at {size}\n{traceback.format_exc(limit=-6)}"
        for a, b in zip(weft.tree.leaves(found), weft.tree.leaves(expected), strict=True):
            if a.dtype != b.dtype or a.shape != b.shape or not onp.array_equal(a, b, equal_nan=True):
                return f"failed: {text} at {size}: {a!r}, expected {b!r}"
        compared += 1
    return f"compared at {compared} sizes"


if __name__ == "__main__":
    main(check_seed, __doc__)

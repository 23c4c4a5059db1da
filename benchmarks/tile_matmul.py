"""Matrix multiplications of bfloat16 and int8 against PyTorch and JAX, for machines with tile registers (AMX).

python benchmarks/tile_matmul.py
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from libraries import load
from measure import Line, compare

import weft
import weft.numpy as wnp
from weft import lax
from weft.compiler.target.cpu.targets import host

SHAPES = [(256,) * 3, (512,) * 3, (1024,) * 3, (2048,) * 3, (4096,) * 3, (128, 4096, 4096), (2048, 64, 2048)]


def main() -> None:
    import torch

    jax = load("jax")
    print(f"tile registers: {'yes' if host().tiles else 'no'}; milliseconds, medians")
    rng = np.random.default_rng(0)
    matmul = weft.jit(lambda a, b: a @ b)
    of_bytes = weft.jit(lambda a, b: lax.dot(a, b, preferred_element_type=np.int32))
    theirs = jax.top.jit(lambda a, b: a @ b)
    for m, k, n in SHAPES:
        floats = [rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (k, n))]
        integers = [rng.integers(-128, 128, shape).astype(np.int8) for shape in ((m, k), (k, n))]
        tensors = [torch.tensor(x.astype(np.float32)).bfloat16() for x in floats]
        lines = [
            Line(
                "bfloat16",
                {
                    "weft": called(lambda *x: matmul(*x).block_until_ready(), [wnp.asarray(x) for x in floats]),
                    "torch": called(torch.matmul, tensors),
                    "jax": called(lambda *x: theirs(*x).block_until_ready(), [jax.np.asarray(x) for x in floats]),
                },
            ),
            Line(
                "int8",
                {
                    "weft": called(lambda *x: of_bytes(*x).block_until_ready(), [wnp.asarray(x) for x in integers]),
                    "torch": called(torch._int_mm, [torch.tensor(x) for x in integers]),
                },
            ),
        ]
        for line in lines:
            times = {side: 1e3 * t.median for side, t in compare(line).times.items()}
            shown = "  ".join(f"{side} {value:8.3f}" for side, value in times.items())
            ratio = times["weft"] / times["torch"]
            print(f"{line.name:9s} {m} x {k} x {n}: {shown}  weft/torch {ratio:.2f}", flush=True)


def called(function: Callable[..., object], arguments: list[Any]) -> Callable[[], object]:
    return lambda: function(*arguments)


if __name__ == "__main__":
    main()

"""C library of a training step, which programs in C, Rust and Go call: `python examples/c_library/build.py`.

It writes `examples/out/c_library/model.h`, `libmodel.a` and, with a C compiler, `libmodel.so`. `main.c`, `main.rs` and
`main.go` begin with the commands that build them; all of them print the same numbers.
"""

from __future__ import annotations

import pathlib
import sys

import numpy as np

import weft
import weft.numpy as wnp
from weft import export

OUT = pathlib.Path(__file__).resolve().parents[1] / "out" / "c_library"
INPUTS, HIDDEN, BATCH = 2, 16, 32


def predict(params: dict, x: weft.Array) -> weft.Array:
    """Return what a network with one hidden layer says of points in the plane."""
    hidden = wnp.tanh(x @ params["w1"] + params["b1"])
    return (hidden @ params["w2"])[:, 0]


def step(params: dict, x: weft.Array, y: weft.Array) -> tuple[dict, weft.Array]:
    """Take a step of gradient descent; return the new weights and the loss."""

    def loss(params: dict) -> weft.Array:
        return wnp.mean((predict(params, x) - y) ** 2)

    value, gradients = weft.value_and_grad(loss)(params)
    return weft.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value


def compile_model(target: str = "host") -> export.Library:
    """Compile both functions. The step writes its new weights over the old ones, which are donated."""
    shapes = {"w1": (INPUTS, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, 1)}
    params = {name: weft.ShapeDtypeStruct(shape, np.float32) for name, shape in shapes.items()}
    x, y = (weft.ShapeDtypeStruct(shape, np.float32) for shape in ((BATCH, INPUTS), (BATCH,)))
    functions = {"predict": (predict, params, x), "step": (weft.jit(step, donate_argnums=0), params, x, y)}
    return export.library(functions, name="model", target=target)


def main(short: bool = False) -> None:
    """Write the library, and print its functions as C declares them."""
    library = compile_model()
    for path in library.save(OUT):
        print(path)
    declarations = [line for line in library.header.splitlines() if line.startswith("int32_t")]
    print("\n".join(declarations))
    print(f"final size of the object {len(library.objects[0].code)} bytes")


if __name__ == "__main__":
    main(short="--short" in sys.argv)

"""Training without Python: a step of gradient descent becomes a C library, and a C program trains with it.

    python examples/c_library.py [--short]

The weights are donated, so that the step updates them in place. The program needs a C compiler, which compiles
`c_library.c` with the header that Weft writes.
"""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
import tempfile

import weft
import weft.numpy as wnp

ROWS, INPUTS, HIDDEN = 64, 2, 16


def predict(params: dict, x: weft.Array) -> weft.Array:
    """Compute the logits of a network with one hidden layer."""
    hidden = wnp.tanh(x @ params["first"] + params["shift"])
    return hidden @ params["second"]


def step(params: dict, x: weft.Array, y: weft.Array, rate: weft.Array) -> tuple[dict, weft.Array]:
    """Take a step of gradient descent on the logistic loss of labels 0 and 1."""

    def loss(params: dict) -> weft.Array:
        logits = predict(params, x)
        return wnp.mean(weft.nn.softplus(logits) - y * logits)

    value, gradient = weft.value_and_grad(loss)(params)
    return weft.tree.map(lambda p, g: p - rate * g, params, gradient), value


def build(folder: pathlib.Path) -> None:
    """Write the library `net` with both functions."""
    array = lambda *shape: weft.ShapeDtypeStruct(shape, wnp.float32)
    params = {"first": array(INPUTS, HIDDEN), "shift": array(HIDDEN), "second": array(HIDDEN)}
    train = weft.jit(step, donate_argnums=0)
    functions = {
        "predict": (predict, params, array(ROWS, INPUTS)),
        "train": (train, params, array(ROWS, INPUTS), array(ROWS), array()),
    }
    library = weft.export.library(functions, name="net")
    print(library)
    library.save(folder)


def main(short: bool = False) -> None:
    """Build the library and the program, and run it."""
    compiler = shutil.which("cc")
    if compiler is None:
        print("final accuracy is that of 0 steps: there is no C compiler")
        return
    source = pathlib.Path(__file__).with_suffix(".c")
    with tempfile.TemporaryDirectory() as folder:
        build(pathlib.Path(folder))
        command = [
            compiler,
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-I",
            folder,
            source,
            "net.o",
            "-lm",
            "-o",
            "net",
        ]
        subprocess.run(command, cwd=folder, check=True)
        done = subprocess.run([f"{folder}/net", "400" if short else "4000"], capture_output=True, text=True, check=True)
    print(done.stdout.strip())
    assert float(done.stdout.split()[-1]) > 0.9


if __name__ == "__main__":
    main(short="--short" in sys.argv)

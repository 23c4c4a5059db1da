"""Public names are declared once, so that type checkers, `import *` and the reference site see the same ones."""

from __future__ import annotations

import importlib
import os
import pathlib
import subprocess
import sys

import pytest

from docs.site import reference
from weft.base.publish import public_names

ROOT = pathlib.Path(__file__).parents[2]
MODULES = [module.__name__ for module in reference.public_modules()]

# A user's program: the names that most programs use, in calls whose types a strict checker can follow.
PROGRAM = '''
"""Train small models with every floor of the library."""

from __future__ import annotations

from collections.abc import Callable

import weft
import weft.numpy as wnp
from weft import keras, lax, linen, nn, optim, random, tree
from weft.sharding import NamedSharding, PartitionSpec
from weft.typing import ArrayLike


def loss(weights: weft.Array, x: weft.Array, y: weft.Array) -> weft.Array:
    predicted = wnp.tanh(x @ weights)
    return wnp.mean((predicted - y) ** 2)


@weft.jit
def step(weights: weft.Array, x: weft.Array, y: weft.Array) -> weft.Array:
    slope: weft.Array = weft.grad(loss)(weights, x, y)
    return weights - 0.1 * slope


def several(xs: weft.Array) -> weft.Array:
    return weft.vmap(lambda x: lax.dynamic_slice_in_dim(x, 0, 2))(xs)


def loops(x: weft.Array) -> weft.Array:
    def body(carry: weft.Array, value: weft.Array) -> tuple[weft.Array, weft.Array]:
        return carry + value, carry

    total, parts = lax.scan(body, wnp.zeros(()), x)
    chosen = lax.cond(total > 0, lambda: total, lambda: -total)
    doubled = lax.fori_loop(0, 3, lambda i, value: value * 2, chosen)
    return lax.add(lax.sin(doubled), lax.reduce_sum_p.bind(parts, axes=(0,)))


def arrays(x: ArrayLike) -> weft.Array:
    values = wnp.asarray(x, dtype=wnp.float32)
    values = wnp.where(values > 0, values, wnp.zeros_like(values)).reshape(-1)
    values = values.at[0].set(1.0).sum(axis=0, keepdims=True)
    return wnp.concatenate([values, wnp.linspace(0.0, 1.0, 3)]) + wnp.linalg.norm(values)


def activations(x: weft.Array) -> weft.Array:
    return nn.relu(x) + nn.gelu(x) + nn.softmax(x, axis=-1) + nn.initializers.zeros(random.key(0), x.shape)


class Perceptron(linen.Module):
    features: int

    @linen.compact
    def __call__(self, x: weft.Array) -> weft.Array:
        hidden = linen.relu(linen.Dense(self.features)(x))
        result: weft.Array = linen.Dense(1)(hidden)
        return result


def train_linen(x: weft.Array, y: weft.Array) -> None:
    model = Perceptron(features=8)
    parameters = model.init(random.key(0), x)
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.adam(1e-3))
    state = optimizer.init(parameters)
    slope = weft.grad(lambda p: wnp.mean((model.apply(p, x) - y) ** 2))(parameters)
    updates, state = optimizer.update(slope, state, parameters)
    parameters = optim.apply_updates(parameters, updates)
    print(tree.map(wnp.shape, parameters))


def train_keras(x: weft.Array, y: weft.Array) -> None:
    layers = keras.layers
    model = keras.Sequential([layers.Input((4,)), layers.Dense(8, activation="relu"), layers.Dense(1)])
    model.compile(optimizer=keras.optimizers.Adam(1e-3), loss=keras.losses.MeanSquaredError(), metrics=["mae"])
    model.fit(x, y, epochs=1, callbacks=[keras.callbacks.EarlyStopping(patience=1)])
    print(keras.ops.matmul(x, keras.ops.ones((4, 2))), keras.metrics.MeanAbsoluteError()(y, y))


def place(x: weft.Array) -> weft.Array:
    mesh = weft.make_mesh((1,), ("data",))
    placed: weft.Array = weft.device_put(x, NamedSharding(mesh, PartitionSpec("data")))
    return placed


def main() -> None:
    key = random.key(0)
    first, second = random.split(key)
    x, y = random.normal(first, (16, 4)), random.uniform(second, (16, 1))
    compute: Callable[[weft.Array], weft.Array] = weft.jit(loops)
    print(compute(y.ravel()), step(wnp.zeros((4, 1)), x, y), several(x), arrays(1.0), activations(x), place(x))
    train_linen(x, y)
    train_keras(x, y)


if __name__ == "__main__":
    main()
'''


@pytest.mark.parametrize("name", MODULES)
def test_exported_names_exist_and_are_public(name):
    module = importlib.import_module(name)
    names = public_names(name)
    assert len(set(names)) == len(names)
    assert not [attribute for attribute in names if attribute.startswith("_") and not attribute.endswith("__")]
    missing = [attribute for attribute in names if not hasattr(module, attribute)]
    assert not missing


def test_names_of_other_modules_are_not_exported():
    exported = {name for module in MODULES if module != "weft.errors" for name in public_names(module)}
    assert not {"Any", "Callable", "annotations", "publish"} & exported


def test_import_star_takes_the_exported_names():
    names: dict[str, object] = {}
    exec("from weft.numpy import *", names)
    assert names.keys() - {"__builtins__"} == {name for name in public_names("weft.numpy")}
    assert "calculus" not in names and "gradient" in names


def test_a_users_program_passes_a_strict_type_check(tmp_path: pathlib.Path) -> None:
    """Strict checkers take a name of a package that ships types only where it is exported explicitly."""
    pytest.importorskip("mypy")
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.lstrip())
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--follow-imports=silent",
        f"--cache-dir={tmp_path}",
        str(path),
    ]
    checked = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.slow
def test_a_users_program_runs(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.lstrip())
    subprocess.run([sys.executable, str(path)], check=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})

"""Trees: flatten, unflatten, map, paths and a call of a jitted function, Weft against JAX in one run.

The trees are what libraries make: a dict of parameters, an MLP of modules whose flatten functions are written in Python
(as Equinox's are), registered dataclasses, the state of an optimizer (namedtuples around the parameters), a long list.

python benchmarks/trees.py [--quick]
"""

from __future__ import annotations

import argparse
import dataclasses
import platform
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from measure import Line, Result, compare
from report import text_table

import weft
import weft.numpy as wnp
from weft.runtime.cpu import tiers

try:
    import jax
    import jax.numpy as jnp
except ImportError:
    sys.exit("benchmarks/trees.py compares with JAX: install jax beside Weft.")

# The library and its NumPy.
SIDES = {"weft": (weft, wnp), "jax": (jax, jnp)}
LAYERS = 4
MISSING = object()


def module_class(library: Any, name: str, data: tuple[str, ...], static: tuple[str, ...]) -> Any:
    """Make a class whose instances are nodes by functions written in Python, with static fields."""

    class Module:
        def __init__(self, **fields: Any) -> None:
            self.__dict__.update(fields)

    Module.__name__ = name
    reads = ", ".join(f"getattr(node, {field!r}, MISSING)" for field in data)
    reads_static = ", ".join(f"getattr(node, {field!r}, MISSING)" for field in static)
    pairs = ", ".join(f"(Key({field!r}), node.{field})" for field in data)
    body = "\n    ".join(
        [f"if children[{i}] is not MISSING: put(node, {field!r}, children[{i}])" for i, field in enumerate(data)]
        + [f"if rest[{i + 1}] is not MISSING: put(node, {field!r}, rest[{i + 1}])" for i, field in enumerate(static)]
    )
    source = f"""
def flatten(node):
    return ({reads},), (MISSING if '__module__' not in node.__dict__ else 0, {reads_static})
def flatten_with_keys(node):
    return ({pairs},), (MISSING if '__module__' not in node.__dict__ else 0, {reads_static})
def unflatten(rest, children):
    node = new(Module)
    {body}
    return node
"""
    names = {
        "MISSING": MISSING,
        "Module": Module,
        "Key": library.tree_util.GetAttrKey,
        "new": object.__new__,
        "put": object.__setattr__,
    }
    exec(source, names)
    library.tree_util.register_pytree_with_keys(
        Module, names["flatten_with_keys"], names["unflatten"], names["flatten"]
    )
    return Module


def parameters(array: Callable[..., Any]) -> dict[str, dict[str, Any]]:
    return {f"layer{i}": {"kernel": array(8, 8), "bias": array(8)} for i in range(LAYERS)}


class Scaled(NamedTuple):
    count: Any
    mean: Any
    variance: Any


class Empty(NamedTuple):
    pass


class Schedule(NamedTuple):
    count: Any


def trees_of(library: Any, xnp: Any) -> dict[str, Any]:
    """Return the trees by their names, of a library's own arrays."""
    rng = np.random.default_rng(0)

    def array(*shape: int) -> Any:
        return xnp.asarray(rng.normal(size=shape).astype(np.float32))

    linear = module_class(library, "Linear", ("weight", "bias"), ("in_features", "out_features", "use_bias"))
    mlp = module_class(
        library, "MLP", ("layers", "activation", "final"), ("in_size", "out_size", "width", "depth", "use_bias")
    )
    sizes = {"in_features": 8, "out_features": 8, "use_bias": True}
    layers = tuple(linear(weight=array(8, 8), bias=array(8), **sizes) for _ in range(LAYERS))
    network = mlp(
        layers=layers, activation=None, final=None, in_size=8, out_size=8, width=8, depth=LAYERS, use_bias=True
    )

    @library.tree_util.register_dataclass
    @dataclasses.dataclass
    class Layer:
        kernel: Any
        bias: Any
        name: str = dataclasses.field(metadata={"static": True}, default="layer")

    @library.tree_util.register_dataclass
    @dataclasses.dataclass
    class Network:
        layers: list[Layer]
        scale: Any
        activation: Any = dataclasses.field(metadata={"static": True}, default=np.tanh)

    state = (Empty(), Scaled(array(), parameters(array), parameters(array)), (Schedule(array()), Empty()))
    return {
        "dict of parameters": parameters(array),
        "modules": network,
        "dataclasses": Network([Layer(array(8, 8), array(8)) for _ in range(LAYERS)], array(8)),
        "optimizer state": state,
        "list of 1000": [array() for _ in range(1000)],
    }


def timed(repeat: int, function: Callable[..., Any], *args: Any) -> Callable[[], None]:
    """Wrap a function in several calls, since one is shorter than the resolution of the clock."""

    def run() -> None:
        for _ in range(repeat):
            function(*args)

    return run


def operations(library: Any, tree: Any) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Return the functions that are timed on a tree, with their arguments."""
    tree_util = library.tree_util
    leaves, structure = tree_util.tree_flatten(tree)
    call = library.jit(lambda tree: tree_util.tree_leaves(tree)[0])
    inner = library.jit(lambda leaves, structure: list(leaves), static_argnums=1)

    def filtered(tree: Any) -> Any:
        """Call as Equinox's `filter_jit` does: leaves are arguments, the structure is static."""
        leaves, structure = tree_util.tree_flatten(tree)
        return tree_util.tree_unflatten(structure, inner(leaves, structure))

    for _ in range(4):
        call(tree)
        filtered(tree)
    same = lambda x: x
    first = lambda x, y: x
    return {
        "flatten": (tree_util.tree_flatten, (tree,)),
        "leaves": (tree_util.tree_leaves, (tree,)),
        "unflatten": (tree_util.tree_unflatten, (structure, leaves)),
        "map": (tree_util.tree_map, (same, tree)),
        "map of two": (tree_util.tree_map, (first, tree, tree)),
        "flatten, is_leaf": (lambda tree: tree_util.tree_flatten(tree, is_leaf=lambda x: x is None), (tree,)),
        "flatten_with_path": (tree_util.tree_flatten_with_path, (tree,)),
        "jit call": (call, (tree,)),
        "filtered jit call": (filtered, (tree,)),
    }


def results(quick: bool) -> Iterator[Result]:
    trees = {side: trees_of(*SIDES[side]) for side in SIDES}
    for name in trees["weft"]:
        ran = {side: operations(SIDES[side][0], trees[side][name]) for side in SIDES}
        tiers.wait()
        for operation in ran["weft"]:
            repeat = 10 if "1000" in name else 200
            sides = {side: timed(repeat, ran[side][operation][0], *ran[side][operation][1]) for side in SIDES}
            found = compare(Line(f"{operation}, {name}", sides, 1.0, 7 if quick else 30))
            times = {
                side: dataclasses.replace(t, median=t.median / repeat, best=t.best / repeat)
                for side, t in found.times.items()
            }
            yield dataclasses.replace(found, times=times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few repeats")
    measured = list(results(parser.parse_args().quick))
    print(
        f"Weft {weft.__version__} against JAX {jax.__version__}, Python {platform.python_version()}, "
        f"{platform.machine()}\n"
    )
    print(text_table(measured))


if __name__ == "__main__":
    main()

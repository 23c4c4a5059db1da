"""Frontends: the vocabulary of linen and Haiku for errors of the mechanism that both share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Path = tuple[str, ...]


@dataclass(frozen=True)
class Frontend:
    """The vocabulary of one frontend.

    Attributes:
        where: function from the path of a module to its text.
        variable: function from a collection and a name to the description of a variable.
        outlived: fixes for the use of variables after their call.
        immutable: function from a collection to fixes for writing it although it is immutable.
        shape: fixes for a parameter of the wrong shape.
        missing: function from a collection to fixes for a missing variable.
        stream: function from a stream to fixes for its missing key.
        lifted: fix for writes inside of a transformation that is not lifted.
        keys: fix for random keys inside of a loop that does not carry them.
    """

    where: Callable[[Path], str]
    variable: Callable[[str, str], str]
    outlived: tuple[str, ...]
    immutable: Callable[[str], tuple[str, ...]]
    shape: tuple[str, ...]
    missing: Callable[[str], tuple[str, ...]]
    stream: Callable[[str], tuple[str, ...]]
    lifted: str
    keys: str


def _variable_in_linen(collection: str, name: str) -> str:
    if not name:
        return f"variables of collection {collection!r}"
    return f"parameter {name!r}" if collection == "params" else f"variable {name!r} of collection {collection!r}"


def _variable_in_haiku(collection: str, name: str) -> str:
    kind = "parameter" if collection == "params" else "state"
    return f"{kind} {name!r}" if name else kind


def _missing_in_linen(collection: str) -> tuple[str, ...]:
    fixes: tuple[str, ...] = (f"pass what init returned: model.apply(variables, ...) with variables[{collection!r}]",)
    if collection != "params":
        fixes += (f"mutable=[{collection!r}]   to let the module make it",)
    return fixes


LINEN = Frontend(
    where=lambda path: "/" + "/".join(path),
    variable=_variable_in_linen,
    outlived=("module.bind(variables)   to use a module outside of apply",),
    immutable=lambda collection: (f"y, changed = model.apply(variables, ..., mutable=[{collection!r}])",),
    shape=(
        "give the module inputs of the sizes it was initialized with",
        "model.init(key, ...)   for new parameters",
    ),
    missing=_missing_in_linen,
    stream=lambda stream: (f"model.apply(variables, ..., rngs={{{stream!r}: weft.random.key(0)}})",),
    lifted="nn.scan, nn.while_loop, nn.cond, nn.jit, ...   which carry the variables and keys of modules",
    keys="keys = weft.random.split(self.make_rng('dropout'), n) before the loop, and one of them in each iteration",
)

HAIKU = Frontend(
    where=lambda path: repr("/".join(path) or "~"),
    variable=_variable_in_haiku,
    outlived=("make the module inside of the transformed function",),
    immutable=lambda collection: (
        "hk.transform_with_state(f)   whose apply(params, state, key, ...) returns (result, state)",
    ),
    shape=(
        "give the module inputs of the sizes it was initialized with",
        "params = f.init(key, ...)   for new parameters",
    ),
    missing=lambda collection: ("pass what init returned: f.apply(params, key, ...) with params = f.init(key, ...)",),
    stream=lambda stream: ("f.apply(params, key, ...)   with key = weft.random.key(0)",),
    lifted="hk.scan, hk.fori_loop, hk.while_loop, hk.cond, hk.remat, ...   which carry state and keys",
    keys="keys = hk.next_rng_keys(n) before it, and one of them inside: with hk.with_rng(key)",
)

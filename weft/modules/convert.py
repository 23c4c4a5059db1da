"""Conversion of parameters and state between the linen and Haiku frontends, and to and from plain NumPy trees.

`weft.linen` stores variables as Flax does ({collection: {module: {name: array}}}, nested) and `weft.haiku` as Haiku
does ({module path: {name: array}}), so trees of those libraries differ in the arrays only: `from_plain` and `to_plain`
convert these. Between the frontends a list of `Pair`s maps modules to each other. What differs between equal layers
(names, the order of axes, the form of averages) is defined here once per kind of layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import weft
from weft.errors import ArgumentError, ParameterNotFoundError, user_line

Tree = Mapping[str, Any]

# Counter of Haiku averages converted from linen, which has no counter. It makes the bias correction 1.
_ENDLESS = np.int32(2**30)


class Pair(NamedTuple):
    """A linen module and the Haiku module that computes the same.

    Attributes:
        linen: the linen path, such as "encoder/Dense_0"; empty if the module is the whole model.
        haiku: the Haiku path, such as "mlp/~/linear_0".
        kind: one of `KINDS`, or None to infer it from the names of the parameters.
        heads: the number of heads, for attention.
        rank: the number of dimensions of the input, for batch normalization.
    """

    linen: str
    haiku: str
    kind: str | None = None
    heads: int | None = None
    rank: int | None = None


# ---------------------------------------------------------------------------------------------------------- plain trees


def to_plain(tree: Any) -> Any:
    """Convert a tree to nested dicts of NumPy arrays, as `flax` and `haiku` take them."""
    if isinstance(tree, Mapping):
        return {key: to_plain(value) for key, value in tree.items()}
    return np.asarray(tree)


def from_plain(tree: Any) -> Any:
    """Convert a nested mapping of arrays of any library to nested dicts of Weft arrays."""
    if isinstance(tree, Mapping):
        return {key: from_plain(value) for key, value in tree.items()}
    return weft.numpy.asarray(np.asarray(tree))


# ----------------------------------------------------------------------------------------------------------- frontends


class _Linen(NamedTuple):
    """One linen module: its parameters and running averages."""

    params: dict[str, Any]
    stats: dict[str, Any]


class _Haiku(NamedTuple):
    """One Haiku module and its submodules: parameters and state by the path relative to the module."""

    params: dict[str, dict[str, Any]]
    state: dict[str, dict[str, Any]]


class _Kind(NamedTuple):
    """The conversions of one kind of layer in both directions."""

    to_haiku: Callable[[_Linen, Pair], _Haiku]
    to_linen: Callable[[_Haiku, Pair], _Linen]


def _rename(names: Mapping[str, str]) -> _Kind:
    """Return the conversion of layers that differ in the names of their parameters only."""
    back = {theirs: ours for ours, theirs in names.items()}

    def to_haiku(module: _Linen, pair: Pair) -> _Haiku:
        return _Haiku({"": {_name(names, key, pair): value for key, value in module.params.items()}}, {})

    def to_linen(module: _Haiku, pair: Pair) -> _Linen:
        return _Linen({_name(back, key, pair): value for key, value in module.params.get("", {}).items()}, {})

    return _Kind(to_haiku, to_linen)


def _name(names: Mapping[str, str], key: str, pair: Pair) -> str:
    if key not in names:
        raise ArgumentError(
            f"{pair.linen!r} and {pair.haiku!r} are not a pair of kind {pair.kind!r}: expected parameters "
            f"{', '.join(map(repr, names))}, got {key!r}."
        )
    return names[key]


_LINEAR = _rename({"kernel": "w", "bias": "b"})


def _swap_channels(params: dict[str, Any]) -> dict[str, Any]:
    """Swap the channel axes of a transposed convolution: linen stores (..., inputs, outputs), Haiku (..., outputs,
    inputs).
    """
    return {name: np.swapaxes(value, -1, -2) if name in ("kernel", "w") else value for name, value in params.items()}


_TRANSPOSED = _Kind(
    lambda module, pair: _LINEAR.to_haiku(_Linen(_swap_channels(module.params), {}), pair),
    lambda module, pair: _Linen(_swap_channels(_LINEAR.to_linen(module, pair).params), {}),
)


def _batch_norm_to_haiku(module: _Linen, pair: Pair) -> _Haiku:
    if pair.rank is None:
        raise ArgumentError(f"The pair of {pair.linen!r} needs `rank`, the number of dimensions of its input.")

    def expand(value: Any) -> Any:
        return np.reshape(value, (1,) * (pair.rank - 1) + np.shape(value))  # type: ignore[operator]

    names = {"scale": "scale", "bias": "offset"}
    params = {_name(names, key, pair): expand(value) for key, value in module.params.items()}
    state = {
        f"~/{average}": {"counter": np.asarray(_ENDLESS), "hidden": expand(value), "average": expand(value)}
        for average, value in (("mean_ema", module.stats["mean"]), ("var_ema", module.stats["var"]))
    }
    return _Haiku({"": params} if params else {}, state)


def _batch_norm_to_linen(module: _Haiku, pair: Pair) -> _Linen:
    names = {"scale": "scale", "offset": "bias"}
    params = {_name(names, key, pair): np.ravel(value) for key, value in module.params.get("", {}).items()}
    stats = {
        name: np.ravel(module.state[f"~/{average}"]["average"])
        for name, average in (("mean", "mean_ema"), ("var", "var_ema"))
    }
    return _Linen(params, stats)


_ATTENTION = (("query", "query"), ("key", "key"), ("value", "value"), ("out", "linear"))


def _attention_to_haiku(module: _Linen, pair: Pair) -> _Haiku:
    """Merge the axis of heads, which linen keeps separate, with the axis of their size."""
    params: dict[str, dict[str, Any]] = {}
    for ours, theirs in _ATTENTION:
        part = module.params[ours]
        kernel = part["kernel"]
        merged = (-1, kernel.shape[-1]) if ours == "out" else (kernel.shape[0], -1)
        params[theirs] = {"w": np.reshape(kernel, merged)}
        if "bias" in part:
            params[theirs]["b"] = np.reshape(part["bias"], (-1,))
    return _Haiku(params, {})


def _attention_to_linen(module: _Haiku, pair: Pair) -> _Linen:
    if pair.heads is None:
        raise ArgumentError(f"The pair of {pair.haiku!r} needs `heads`, the number of heads.")
    params: dict[str, Any] = {}
    for ours, theirs in _ATTENTION:
        part = module.params[theirs]
        w = part["w"]
        apart = (pair.heads, -1, w.shape[1]) if ours == "out" else (w.shape[0], pair.heads, -1)
        params[ours] = {"kernel": np.reshape(w, apart)}
        if "b" in part:
            params[ours]["bias"] = part["b"] if ours == "out" else np.reshape(part["b"], (pair.heads, -1))
    return _Linen(params, {})


_GATES = "igfo"  # in the order of Haiku's columns


def _lstm_to_haiku(module: _Linen, pair: Pair) -> _Haiku:
    """Concatenate the layers of all gates into one.

    linen has a layer for each gate, from the input and from the hidden state; Haiku adds 1 to the forget gate's bias.
    """
    inputs = np.concatenate([module.params[f"i{gate}"]["kernel"] for gate in _GATES], axis=-1)
    hidden = np.concatenate([module.params[f"h{gate}"]["kernel"] for gate in _GATES], axis=-1)
    biases = [module.params[f"h{gate}"]["bias"] - (1 if gate == "f" else 0) for gate in _GATES]
    return _Haiku({"linear": {"w": np.concatenate([inputs, hidden], axis=0), "b": np.concatenate(biases)}}, {})


def _lstm_to_linen(module: _Haiku, pair: Pair) -> _Linen:
    w, b = module.params["linear"]["w"], module.params["linear"]["b"]
    size = b.shape[0] // 4
    params: dict[str, Any] = {}
    for i, gate in enumerate(_GATES):
        columns = slice(i * size, (i + 1) * size)
        params[f"i{gate}"] = {"kernel": w[:-size, columns]}
        params[f"h{gate}"] = {"kernel": w[-size:, columns], "bias": b[columns] + (1 if gate == "f" else 0)}
    return _Linen(params, {})


KINDS: dict[str, _Kind] = {
    "linear": _LINEAR,  # Dense and Linear
    "conv": _LINEAR,  # Conv and Conv1D, Conv2D, Conv3D, Depthwise...
    "conv_transpose": _TRANSPOSED,  # ConvTranspose and Conv2DTranspose ...
    "embed": _rename({"embedding": "embeddings"}),  # Embed and Embed
    "norm": _rename({"scale": "scale", "bias": "offset"}),  # LayerNorm, RMSNorm, GroupNorm, InstanceNorm
    "batch_norm": _Kind(_batch_norm_to_haiku, _batch_norm_to_linen),
    "attention": _Kind(_attention_to_haiku, _attention_to_linen),  # MultiHeadDotProductAttention, MultiHeadAttention
    "lstm": _Kind(_lstm_to_haiku, _lstm_to_linen),  # OptimizedLSTMCell and LSTM
}
# Kinds that the names of a module's variables or submodules imply. A transposed convolution has the names of a plain
# one, so its kind must be given.
_LINEN_SIGNS = (("mean", "batch_norm"), ("query", "attention"), ("ii", "lstm"), ("embedding", "embed"),
                ("kernel", "linear"), ("scale", "norm"), ("bias", "norm"))  # fmt: skip
_HAIKU_SIGNS = (("~/mean_ema", "batch_norm"), ("query", "attention"), ("linear", "lstm"), ("embeddings", "embed"),
                ("w", "linear"), ("scale", "norm"), ("offset", "norm"))  # fmt: skip


def _kind(pair: Pair, there: set[str], signs: Sequence[tuple[str, str]], path: str) -> tuple[Pair, _Kind]:
    name = pair.kind or next((kind for sign, kind in signs if sign in there), None)
    if name not in KINDS:
        raise ArgumentError(
            f"The kind of layer {path!r} cannot be inferred from its variables ({', '.join(sorted(there)) or 'none'}); "
            f"kind must be one of {', '.join(KINDS)}, got {pair.kind!r}."
        )
    return pair._replace(kind=name), KINDS[name]


def _below(tree: Any, path: str) -> Any:
    for part in filter(None, path.split("/")):
        tree = tree.get(part, {}) if isinstance(tree, Mapping) else {}
    return to_plain(tree)


def _missing(path: str, frontend: str, paths: Sequence[str]) -> ParameterNotFoundError:
    return ParameterNotFoundError(
        f"There is no {frontend} module {path!r} to convert.",
        at=user_line(),
        received=f"modules: {', '.join(map(repr, paths)) or 'none'}",
        fix="use the path of the module in the tree",
    )


def linen_to_haiku(variables: Tree, pairs: Sequence[Pair | tuple[Any, ...]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Convert variables of linen ({"params": ..., "batch_stats": ...}) to (params, state) of Haiku.

    Every variable must belong to a pair.
    """
    params: dict[str, Any] = {}
    state: dict[str, Any] = {}
    used: set[str] = set()
    for fields in pairs:
        pair = Pair(*fields)
        module = _Linen(
            _below(variables.get("params", {}), pair.linen), _below(variables.get("batch_stats", {}), pair.linen)
        )
        if not module.params and not module.stats:
            raise _missing(pair.linen, "linen", _linen_paths(variables))
        used.add(pair.linen)
        pair, kind = _kind(pair, {*module.params, *module.stats}, _LINEN_SIGNS, pair.linen)
        converted = kind.to_haiku(module, pair)
        for outer, inner in ((params, converted.params), (state, converted.state)):
            for part, values in inner.items():
                outer[f"{pair.haiku}/{part}" if part else pair.haiku] = from_plain(values)
    left = [path for path in _linen_paths(variables) if not any(_is_below(path, one) for one in used)]
    _check_all(left, "linen")
    return params, state


def haiku_to_linen(params: Tree, state: Tree | None, pairs: Sequence[Pair | tuple[Any, ...]]) -> dict[str, Any]:
    """Convert params and state of Haiku to variables of linen ({"params": ..., "batch_stats": ...}).

    Every parameter and state must belong to a pair.
    """
    state = state or {}
    variables: dict[str, Any] = {"params": {}}
    used: set[str] = set()
    paths = list(dict.fromkeys([*params, *state]))
    for fields in pairs:
        pair = Pair(*fields)
        module = _Haiku(_parts(params, pair.haiku), _parts(state, pair.haiku))
        if not module.params and not module.state:
            raise _missing(pair.haiku, "Haiku", paths)
        used.add(pair.haiku)
        there = {*module.params, *module.state, *module.params.get("", {})}
        pair, kind = _kind(pair, there, _HAIKU_SIGNS, pair.haiku)
        converted = kind.to_linen(module, pair)
        for collection, values in (("params", converted.params), ("batch_stats", converted.stats)):
            if values:
                node = variables.setdefault(collection, {})
                for part in filter(None, pair.linen.split("/")):
                    node = node.setdefault(part, {})
                node.update(from_plain(values))
    _check_all([path for path in paths if not any(_is_below(path, one) for one in used)], "Haiku")
    return variables


def _parts(tree: Tree, path: str) -> dict[str, dict[str, Any]]:
    """Return a Haiku module and its submodules by their paths relative to it."""
    return {
        where.removeprefix(path).removeprefix("/"): to_plain(values)
        for where, values in tree.items()
        if _is_below(where, path)
    }


def _is_below(path: str, above: str) -> bool:
    return not above or path == above or path.startswith(f"{above}/")


def _linen_paths(variables: Tree) -> list[str]:
    """Return the paths of all modules that have a variable."""
    found: dict[str, None] = {}

    def visit(tree: Any, path: str) -> None:
        for name, value in tree.items():
            if isinstance(value, Mapping):
                visit(value, f"{path}/{name}" if path else name)
            else:
                found[path] = None

    for collection in variables.values():
        visit(collection, "")
    return list(found)


def _check_all(left: Sequence[str], frontend: str) -> None:
    if left:
        raise ArgumentError(
            f"Each module must belong to a pair; the {frontend} modules {', '.join(map(repr, left))} do not. Add "
            "pairs, or remove these modules from the tree."
        )

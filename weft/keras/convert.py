"""Weights of a model to and from linen variables, Haiku parameters, PyTorch state dicts and safetensors files.

A layer of the model and a module of the other library are a pair where the module has the layer's path (`names` says so
where it has another). What differs between equal layers (names, the order of axes and of gates) is written here once
for each kind of layer; between linen and Haiku it is in `weft.modules.convert`.

Nothing is assigned before everything fits: an error lists all that does not, and leaves the model as it was.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from weft.errors import ArgumentError, NotSupportedError
from weft.keras.core.variable import Variable
from weft.modules import convert as modules, safetensors

Weights = dict[str, np.ndarray]
Names = Mapping[str, str] | None
_MOST_LINES = 20  # of an error
_UNSPLIT = "\0"  # a separator that no name has


# ---------------------------------------------------------------------------------------------------------------- kinds


class Codec(NamedTuple):
    """An array of Keras as another library stores it, and back: `decode` also gets the shape that Keras has."""

    encode: Callable[[np.ndarray], np.ndarray] = lambda array: array
    decode: Callable[[np.ndarray, tuple[int, ...]], np.ndarray] = lambda array, shape: array


class Entry(NamedTuple):
    """One variable: its name in Keras, in linen (statistics are marked) and in PyTorch."""

    keras: str
    linen: str
    torch: str
    in_torch: Codec = Codec()
    in_linen: Codec = Codec()
    is_statistic: bool = False


class Kind(NamedTuple):
    """How layers of a kind are stored: dicts by name inside of the module, with dots for parts of it."""

    to_linen: Callable[[Weights], Weights]
    from_linen: Callable[[Weights, Mapping[str, tuple[int, ...]]], Weights]
    to_torch: Callable[[Weights], Weights]
    from_torch: Callable[[Weights, Mapping[str, tuple[int, ...]]], Weights]
    haiku: str | None = None
    ignored: tuple[str, ...] = ()
    statistics: tuple[str, ...] = ()


def _by_entries(*entries: Entry, haiku: str | None = None, more: Weights | None = None) -> Kind:
    """Create a kind whose variables are stored one by one; `more` are PyTorch's additional arrays."""

    def to(part: str) -> Callable[[Weights], Weights]:
        def encode(weights: Weights) -> Weights:
            there = [entry for entry in entries if entry.keras in weights]
            return {getattr(e, part): getattr(e, f"in_{part}").encode(weights[e.keras]) for e in there}

        return encode

    def back(part: str) -> Callable[[Weights, Mapping[str, tuple[int, ...]]], Weights]:
        def decode(arrays: Weights, shapes: Mapping[str, tuple[int, ...]]) -> Weights:
            there = [entry for entry in entries if entry.keras in shapes and getattr(entry, part) in arrays]
            return {e.keras: getattr(e, f"in_{part}").decode(arrays[getattr(e, part)], shapes[e.keras]) for e in there}

        return decode

    to_torch = to("torch")
    return Kind(
        to("linen"),
        back("linen"),
        lambda weights: {**to_torch(weights), **(more or {})},
        back("torch"),
        haiku,
        tuple(more or ()),
        tuple(entry.linen for entry in entries if entry.is_statistic),
    )


def _permute(order: Callable[[int], tuple[int, ...]]) -> Codec:
    """Return a codec that permutes axes; the order depends on their number."""
    return Codec(
        lambda array: np.transpose(array, order(array.ndim)),
        lambda array, shape: np.transpose(array, np.argsort(order(array.ndim))),
    )


def _outputs_first(rank: int) -> tuple[int, ...]:
    """Return the permutation from (..., inputs, outputs) to (outputs, inputs, ...)."""
    return (rank - 1, rank - 2, *range(rank - 2))


def _flip_kernel(array: np.ndarray) -> np.ndarray:
    """Convert a kernel of a transposed convolution for linen, which flips it and has inputs before outputs."""
    return np.swapaxes(np.flip(array, axis=tuple(range(array.ndim - 2))), -1, -2)


def _group_kernel(array: np.ndarray) -> np.ndarray:
    """Reshape (..., inputs, multiplier) to the kernel of a convolution with a group for each input."""
    return np.reshape(array, (*array.shape[:-2], 1, -1))


_OUTPUTS_FIRST = _permute(_outputs_first)
_BIAS = Entry("bias", "bias", "bias")
_DEPTHWISE = Codec(_group_kernel, lambda array, shape: np.reshape(array, shape))
_DEPTHWISE_TORCH = Codec(
    lambda array: _OUTPUTS_FIRST.encode(_group_kernel(array)),
    lambda array, shape: np.reshape(_OUTPUTS_FIRST.decode(array, ()), shape),
)
_NORM = (Entry("gamma", "scale", "weight"), Entry("beta", "bias", "bias"))
_BATCH_NORM = (
    *_NORM,
    Entry("moving_mean", "mean", "running_mean", is_statistic=True),
    Entry("moving_variance", "var", "running_var", is_statistic=True),
)
_LINEAR = _by_entries(Entry("kernel", "kernel", "weight", _OUTPUTS_FIRST), _BIAS, haiku="linear")
_CONV = _LINEAR._replace(haiku="conv")


def _reorder_gates(weights: Weights, order: tuple[int, ...], count: int) -> Weights:
    """Reorder the gates along the last axis."""
    return {
        name: np.concatenate([np.split(array, count, axis=-1)[i] for i in order], axis=-1)
        for name, array in weights.items()
    }


def _recurrent_to_torch(order: tuple[int, ...]) -> Callable[[Weights], Weights]:
    """Encode kernels as (gates, inputs), and a bias of the input and one of the hidden state."""

    def encode(weights: Weights) -> Weights:
        gates = _reorder_gates(weights, order, len(order))
        found = {"weight_ih_l0": gates["kernel"].T, "weight_hh_l0": gates["recurrent_kernel"].T}
        if "bias" in gates:
            bias = gates["bias"]
            both = bias if bias.ndim == 2 else np.stack([bias, np.zeros_like(bias)])
            found.update(bias_ih_l0=both[0], bias_hh_l0=both[1])
        return found

    return encode


def _recurrent_from_torch(order: tuple[int, ...]) -> Callable[..., Weights]:
    def decode(arrays: Weights, shapes: Mapping[str, tuple[int, ...]]) -> Weights:
        found = {
            keras: arrays[torch].T
            for keras, torch in (("kernel", "weight_ih_l0"), ("recurrent_kernel", "weight_hh_l0"))
            if torch in arrays
        }
        if "bias" in shapes and {"bias_ih_l0", "bias_hh_l0"} <= set(arrays):
            both = np.stack([arrays["bias_ih_l0"], arrays["bias_hh_l0"]])
            found["bias"] = both if len(shapes["bias"]) == 2 else both.sum(axis=0)
        return _reorder_gates(found, tuple(int(i) for i in np.argsort(order)), len(order))

    return decode


_LSTM_GATES = "ifgo"  # Keras' order, by linen's names


def _lstm_to_linen(weights: Weights) -> Weights:
    bias = weights.get("bias", np.zeros(weights["kernel"].shape[-1], weights["kernel"].dtype))
    found: Weights = {}
    for i, gate in enumerate(_LSTM_GATES):
        found[f"i{gate}.kernel"] = np.split(weights["kernel"], 4, axis=-1)[i]
        found[f"h{gate}.kernel"] = np.split(weights["recurrent_kernel"], 4, axis=-1)[i]
        found[f"h{gate}.bias"] = np.split(bias, 4)[i]
    return found


def _lstm_from_linen(arrays: Weights, shapes: Mapping[str, tuple[int, ...]]) -> Weights:
    parts = {"kernel": "i{}.kernel", "recurrent_kernel": "h{}.kernel", "bias": "h{}.bias"}
    return {
        name: np.concatenate([arrays[part.format(gate)] for gate in _LSTM_GATES], axis=-1)
        for name, part in parts.items()
        if name in shapes and all(part.format(gate) in arrays for gate in _LSTM_GATES)
    }


_GRU_GATES = "zrn"  # Keras' order, by linen's names


def _gru_to_linen(weights: Weights) -> Weights:
    """Convert the weights of a GRU; linen has one bias for the reset and the update gate, and two for the candidate."""
    kernel = weights["kernel"]
    bias = weights.get("bias", np.zeros((2, kernel.shape[-1]), kernel.dtype))
    if bias.ndim == 1:
        raise NotSupportedError(
            "Only a GRU with reset_after=True can be converted to linen's GRUCell.", received="reset_after=False"
        )
    found: Weights = {}
    for i, gate in enumerate(_GRU_GATES):
        of_input, of_hidden = (np.split(row, 3)[i] for row in bias)
        found[f"i{gate}.kernel"] = np.split(kernel, 3, axis=-1)[i]
        found[f"h{gate}.kernel"] = np.split(weights["recurrent_kernel"], 3, axis=-1)[i]
        found[f"i{gate}.bias"] = of_input if gate == "n" else of_input + of_hidden
        if gate == "n":
            found["hn.bias"] = of_hidden
    return found


def _gru_from_linen(arrays: Weights, shapes: Mapping[str, tuple[int, ...]]) -> Weights:
    merged = lambda part: np.concatenate([arrays[part.format(gate)] for gate in _GRU_GATES], axis=-1)
    names = [f"{side}{gate}.kernel" for side in "ih" for gate in _GRU_GATES]
    if not set(names) <= set(arrays):
        return {}
    found = {"kernel": merged("i{}.kernel"), "recurrent_kernel": merged("h{}.kernel")}
    if "bias" in shapes and "hn.bias" in arrays:
        of_input = merged("i{}.bias")
        rest = np.zeros(2 * arrays["hn.bias"].size, of_input.dtype)
        found["bias"] = np.stack([of_input, np.concatenate([rest, arrays["hn.bias"]])])
    return found


_ATTENTION = (("query", "query"), ("key", "key"), ("value", "value"), ("attention_output", "out"))


def _rename_attention(weights: Weights, names: tuple[tuple[str, str], ...], old: str, new: str) -> Weights:
    return {
        f"{theirs}{new}{part}": weights[f"{ours}{old}{part}"]
        for ours, theirs in names
        for part in ("kernel", "bias")
        if f"{ours}{old}{part}" in weights
    }


def _attention_to_torch(weights: Weights) -> Weights:
    kernels = [weights[f"{name}/kernel"] for name in ("query", "key", "value")]
    if len({kernel.shape for kernel in kernels}) != 1:
        raise NotSupportedError(
            "Query, key and value must have equal sizes: PyTorch's MultiheadAttention stores them in one matrix."
        )
    out = weights["attention_output/kernel"]
    found = {
        "in_proj_weight": np.concatenate([kernel.reshape(kernel.shape[0], -1).T for kernel in kernels]),
        "out_proj.weight": out.reshape(-1, out.shape[-1]).T,
    }
    if "query/bias" in weights:
        found["in_proj_bias"] = np.concatenate([weights[f"{n}/bias"].ravel() for n in ("query", "key", "value")])
        found["out_proj.bias"] = weights["attention_output/bias"]
    return found


def _attention_from_torch(arrays: Weights, shapes: Mapping[str, tuple[int, ...]]) -> Weights:
    found: Weights = {}
    for part in ("kernel", "bias"):
        merged = arrays.get("in_proj_weight" if part == "kernel" else "in_proj_bias")
        for i, name in enumerate(("query", "key", "value")):
            key = f"{name}/{part}"
            if merged is not None and key in shapes:
                found[key] = np.split(merged, 3)[i].T.reshape(shapes[key])
        key, theirs = f"attention_output/{part}", "out_proj.weight" if part == "kernel" else "out_proj.bias"
        if theirs in arrays and key in shapes:
            found[key] = arrays[theirs].T.reshape(shapes[key])
    return found


_COUNT = {"num_batches_tracked": np.zeros((), np.int64)}
_KINDS: dict[str, Kind] = {
    "Dense": _LINEAR,
    "Conv1D": _CONV,
    "Conv2D": _CONV,
    "Conv3D": _CONV,
    **{
        f"Conv{n}DTranspose": _by_entries(
            Entry(
                "kernel",
                "kernel",
                "weight",
                _OUTPUTS_FIRST,
                Codec(_flip_kernel, lambda array, shape: _flip_kernel(array)),
            ),
            _BIAS,
            haiku="conv_transpose",
        )
        for n in (1, 2, 3)
    },
    **{
        f"DepthwiseConv{n}D": _by_entries(
            Entry("kernel", "kernel", "weight", _DEPTHWISE_TORCH, _DEPTHWISE), _BIAS, haiku="conv"
        )
        for n in (1, 2)
    },
    "Embedding": _by_entries(Entry("embeddings", "embedding", "weight"), haiku="embed"),
    "LayerNormalization": _by_entries(*_NORM, haiku="norm"),
    "GroupNormalization": _by_entries(*_NORM, haiku="norm"),
    "RMSNormalization": _by_entries(Entry("scale", "scale", "weight"), haiku="norm"),
    "BatchNormalization": _by_entries(*_BATCH_NORM, haiku="batch_norm", more=_COUNT),
    # Keras has the gates i, f, c, o as PyTorch does, and z, r, h where PyTorch has r, z, n.
    "LSTM": Kind(
        _lstm_to_linen, _lstm_from_linen, _recurrent_to_torch((0, 1, 2, 3)), _recurrent_from_torch((0, 1, 2, 3)), "lstm"
    ),
    "GRU": Kind(_gru_to_linen, _gru_from_linen, _recurrent_to_torch((1, 0, 2)), _recurrent_from_torch((1, 0, 2))),
    "MultiHeadAttention": Kind(
        lambda weights: _rename_attention(weights, _ATTENTION, "/", "."),
        lambda arrays, shapes: _rename_attention(arrays, tuple((b, a) for a, b in _ATTENTION), ".", "/"),
        _attention_to_torch,
        _attention_from_torch,
        "attention",
    ),
}


# --------------------------------------------------------------------------------------------------------------- layers


class Part(NamedTuple):
    """A layer with weights: its path in the model, its kind, and its variables by name."""

    path: str
    layer: Any
    kind: Kind | None
    variables: dict[str, Variable]

    @property
    def weights(self) -> Weights:
        """The values of the variables."""
        return {name: variable.numpy() for name, variable in self.variables.items()}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the variables."""
        return {name: variable.shape for name, variable in self.variables.items()}


def _find_kind(layer: Any) -> Kind | None:
    return next((_KINDS[cls.__name__] for cls in type(layer).__mro__ if cls.__name__ in _KINDS), None)


def _variables(layer: Any, recurrent: bool) -> dict[str, Variable]:
    """Return the weights of a layer by name, with the names of inner layers as prefix; a cell's weights have none."""
    found: dict[str, Variable] = {variable.name: variable for variable in layer._own_variables()}
    for child in layer._flatten_layers(include_self=False, recursive=False):
        for name, variable in _variables(child, recurrent).items():
            found[name if recurrent else f"{child.name}/{name}"] = variable
    return found


def _parts(model: Any) -> list[Part]:
    """Return the layers of a model that have weights, in order; layers without a kind by their inner layers."""
    found: list[Part] = []
    seen: set[int] = set()

    def visit(layer: Any, path: str) -> None:
        if id(layer) in seen:
            return
        seen.add(id(layer))
        kind = _find_kind(layer)
        children = layer._flatten_layers(include_self=False, recursive=False)
        if kind is not None or not children:
            variables = _variables(layer, recurrent=type(layer).__name__ in ("LSTM", "GRU"))
            if variables:
                found.append(Part(path, layer, kind, variables))
            return
        own = {variable.name: variable for variable in layer._own_variables()}
        if own:
            found.append(Part(path, layer, None, own))
        for child in children:
            visit(child, f"{path}/{child.name}" if path else child.name)

    visit(model, "")
    if not found:
        raise ArgumentError(f"The model {model.name} has no weights yet.", fix="build it: call it, or give it an Input")
    return found


def layer_paths(model: Any) -> list[str]:
    """Return the paths of all layers with weights, in the order of the model: the keys of `names`.

    Args:
        model: a model or layer that is built.
    """
    return [part.path for part in _parts(model)]


def _known(model: Any) -> list[Part]:
    parts = _parts(model)
    unknown = [f"{part.path} ({type(part.layer).__name__})" for part in parts if part.kind is None]
    if unknown:
        raise NotSupportedError(
            "Some layers have no equal in other libraries that is known here.",
            received=", ".join(unknown),
            fix="save these weights by themselves; `to_safetensors` takes all layers",
        )
    return parts


def _layer_names(parts: list[Part], names: Names, separator: str) -> dict[str, str]:
    """Return the other library's name of each layer."""
    paths = [part.path for part in parts]
    wrong = [key for key in names or {} if key not in paths]
    if wrong:
        raise ArgumentError(
            "`names` has keys that are no layers with weights.",
            received=", ".join(wrong),
            fix=f"the paths are {', '.join(paths)}",
        )
    return {path: (names or {}).get(path, path.replace("/", separator)) for path in paths}


def _assign(model: Any, found: list[tuple[Part, Weights]], problems: list[str]) -> None:
    """Assign all weights, or raise with a list of all that does not fit."""
    for part, weights in found:
        for name, variable in part.variables.items():
            value = weights.get(name)
            where = f"{part.path}/{name}" if part.path else name
            if value is None:
                problems.append(f"nothing for {where} {variable.shape}")
            elif tuple(value.shape) != variable.shape:
                problems.append(f"{tuple(value.shape)} for {where} {variable.shape}")
    if problems:
        shown = problems[:_MOST_LINES] + ([f"... {len(problems)} in all"] if len(problems) > _MOST_LINES else [])
        raise ArgumentError(
            f"These weights do not fit the model {model.name}, which stays as it was.",
            received="; ".join(shown),
            fix="pass `names={layer path: name in the other library}`; `layer_paths(model)` lists the former",
        )
    for part, weights in found:
        for name, variable in part.variables.items():
            variable.assign(weights[name])


def _plain(value: Any) -> np.ndarray:
    """Convert an array of any library to NumPy."""
    if hasattr(value, "detach"):  # a tensor of PyTorch
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
    return np.asarray(value)


def _group_by(arrays: Mapping[str, Any], prefixes: dict[str, str], ignored: Mapping[str, tuple[str, ...]]) -> Any:
    """Group arrays by layer path and name inside of the module; describe each array without a layer in a line."""
    found: dict[str, Weights] = {path: {} for path in prefixes}
    left: list[str] = []
    # Of modules inside of each other, the inner one; of the layers of a recurrent module, the one that is named.
    by_length = sorted(prefixes.items(), key=lambda pair: len(pair[1]), reverse=True)
    for key, value in arrays.items():
        inside = ((path, _inside(key, module)) for path, module in by_length)
        owner, name = next(((path, name) for path, name in inside if name is not None), ("", None))
        if name is None:
            left.append(f"no layer for {key} {tuple(np.shape(value))}")
        elif name not in ignored[owner]:
            found[owner][name] = _plain(value)
    return found, left


_FIRST = "_l0"  # how names of the first layer of a recurrent module of PyTorch end


def _inside(key: str, module: str) -> str | None:
    """Return the name inside of a module, or None: `0.rnn:l1_reverse` is that layer of the recurrent module `0.rnn`."""
    prefix, _, layer = module.partition(":")
    if prefix and not key.startswith(f"{prefix}."):
        return None
    name = key.removeprefix(f"{prefix}.") if prefix else key
    if not layer:
        return name
    return f"{name.removesuffix(f'_{layer}')}{_FIRST}" if name.endswith(f"_{layer}") else None


def _outside(name: str, module: str) -> str:
    """Return the full name of an array that a module calls `name`."""
    prefix, _, layer = module.partition(":")
    if layer:
        name = f"{name.removesuffix(_FIRST)}_{layer}"
    return f"{prefix}.{name}" if prefix else name


def _describe_unused(part: Part, arrays: Weights, expected: Weights) -> list[str]:
    """Describe each array of a module that its layer does not use, in one line each."""
    return [
        f"no variable for {part.path}.{name} {array.shape}" for name, array in arrays.items() if name not in expected
    ]


# -------------------------------------------------------------------------------------------------------------- PyTorch


def to_torch(model: Any, names: Names = None) -> Weights:
    """Convert the weights of a model to a PyTorch state dict of NumPy arrays.

    Args:
        model: a model that is built.
        names: for each layer path the name of the module, such as {"dense": "0", "block/conv": "body.conv1"}; the path
            with dots where there is no entry. Suffixes distinguish the layers of one recurrent module:
            {"bidirectional_1/backward_lstm": "rnn:l1_reverse"}.

    Returns:
        arrays by name; `{k: torch.from_numpy(v) for k, v in ...}` is what `load_state_dict` takes.

    >>> from weft import keras
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="dense")])
    >>> {name: array.shape for name, array in keras.convert.to_torch(model, {"dense": "0"}).items()}
    {'0.weight': (3, 4), '0.bias': (3,)}
    """
    parts = _known(model)
    prefixes = _layer_names(parts, names, ".")
    return {
        _outside(name, prefixes[part.path]): np.ascontiguousarray(array)
        for part in parts
        if part.kind is not None
        for name, array in part.kind.to_torch(part.weights).items()
    }


def from_torch(model: Any, state_dict: Mapping[str, Any] | str | os.PathLike[str], names: Names = None) -> None:
    """Assign the weights of a PyTorch state dict to a model.

    Args:
        model: a model that is built.
        state_dict: tensors or arrays by name, or the path of a safetensors file.
        names: as of `to_torch`; `names_by_order(model, state_dict)` pairs modules and layers in order.

    >>> import numpy as np
    >>> from weft import keras
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> state_dict = {"0.weight": np.array([[1.0, 2.0]]), "0.bias": np.array([3.0])}
    >>> keras.convert.from_torch(model, state_dict, keras.convert.names_by_order(model, state_dict))
    >>> print(model(np.array([[1.0, 1.0]])))
    [[6.]]
    """
    from_file = isinstance(state_dict, (str, os.PathLike))
    entries: Mapping[str, Any] = safetensors.load_file(state_dict, _UNSPLIT) if from_file else state_dict  # type: ignore
    parts = _known(model)
    ignored = {part.path: part.kind.ignored for part in parts if part.kind is not None}
    arrays, problems = _group_by(entries, _layer_names(parts, names, "."), ignored)
    found: list[tuple[Part, Weights]] = []
    for part in parts:
        if part.kind is not None:
            problems += _describe_unused(part, arrays[part.path], part.kind.to_torch(part.weights))
            found.append((part, part.kind.from_torch(arrays[part.path], part.shapes)))
    _assign(model, found, problems)


def names_by_order(model: Any, state_dict: Mapping[str, Any]) -> dict[str, str]:
    """Pair the layers of a model with the modules of a PyTorch state dict, both in their order.

    Args:
        model: a model that is built.
        state_dict: arrays by name.

    Returns:
        the module of each layer path: the argument `names` of `from_torch`.
    """
    prefixes: list[str] = []
    for key in state_dict:
        prefix = key.rpartition(".")[0]
        if not any(prefix == known or prefix.startswith(f"{known}.") for known in prefixes):
            prefixes.append(prefix)
    paths = layer_paths(model)
    if len(prefixes) != len(paths):
        raise ArgumentError(
            "There must be one module for each layer with weights.",
            received=f"{len(prefixes)} modules ({', '.join(prefixes)}) and {len(paths)} layers ({', '.join(paths)})",
        )
    return dict(zip(paths, prefixes, strict=True))


# ---------------------------------------------------------------------------------------------------------------- linen


def to_linen(model: Any, names: Names = None) -> dict[str, Any]:
    """Convert the weights of a model to variables of linen: {"params": ..., "batch_stats": ...}, nested by module.

    Args:
        model: a model that is built.
        names: for each layer path the path of the module, such as {"dense": "encoder/Dense_0"}; the same where there
            is no entry. An LSTM or GRU is the cell.

    Returns:
        nested dicts of arrays, as `Module.apply` of linen takes them.

    >>> from weft import keras
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="dense")])
    >>> sorted(keras.convert.to_linen(model)["params"]["dense"])
    ['bias', 'kernel']
    """
    parts = _known(model)
    prefixes = _layer_names(parts, names, "/")
    variables: dict[str, Any] = {"params": {}}
    for part in parts:
        if part.kind is None:
            continue
        for name, array in part.kind.to_linen(part.weights).items():
            collection = "batch_stats" if name in part.kind.statistics else "params"
            node = variables.setdefault(collection, {})
            *above, last = [*filter(None, prefixes[part.path].split("/")), *name.split(".")]
            for one in above:
                node = node.setdefault(one, {})
            node[last] = array
    return modules.from_plain(variables)


def from_linen(model: Any, variables: Mapping[str, Any], names: Names = None) -> None:
    """Assign variables of linen (or of Flax) to a model.

    Args:
        model: a model that is built.
        variables: {"params": ..., "batch_stats": ...}.
        names: as of `to_linen`.
    """
    parts = _known(model)
    prefixes = {path: prefix.replace("/", ".") for path, prefix in _layer_names(parts, names, "/").items()}
    plain = [modules.to_plain(variables.get(collection, {})) for collection in ("params", "batch_stats")]
    flat = {name: array for tree in plain for name, array in safetensors.flat(tree).items()}
    arrays, problems = _group_by(flat, prefixes, {part.path: () for part in parts})
    found: list[tuple[Part, Weights]] = []
    for part in parts:
        if part.kind is not None:
            problems += _describe_unused(part, arrays[part.path], part.kind.to_linen(part.weights))
            found.append((part, part.kind.from_linen(arrays[part.path], part.shapes)))
    _assign(model, found, problems)


# ---------------------------------------------------------------------------------------------------------------- Haiku


def _pairs(model: Any, names: Names) -> list[modules.Pair]:
    parts = _known(model)
    missing = [f"{p.path} ({type(p.layer).__name__})" for p in parts if p.kind is not None and p.kind.haiku is None]
    if missing:
        raise NotSupportedError("Haiku has no equal of these layers.", received=", ".join(missing))
    haiku = _layer_names(parts, names, "/")
    pairs = []
    for part in parts:
        kind = None if part.kind is None else part.kind.haiku
        heads = part.variables["query/kernel"].shape[1] if kind == "attention" else None
        rank = getattr(getattr(part.layer, "input_spec", None), "ndim", None) if kind == "batch_norm" else None
        pairs.append(modules.Pair(part.path, haiku[part.path], kind, heads, rank))
    return pairs


def to_haiku(model: Any, names: Names = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Convert the weights of a model to (params, state) of Haiku.

    Args:
        model: a model that is built.
        names: for each layer path that of the module, such as {"dense": "mlp/~/linear_0"}; the same where there is no
            entry.

    Returns:
        the parameters and the state, by module path and name.

    >>> from weft import keras
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="dense")])
    >>> params, state = keras.convert.to_haiku(model, {"dense": "linear"})
    >>> sorted(params["linear"])
    ['b', 'w']
    """
    return modules.linen_to_haiku(to_linen(model), _pairs(model, names))


def from_haiku(
    model: Any, params: Mapping[str, Any], state: Mapping[str, Any] | None = None, names: Names = None
) -> None:
    """Assign parameters and state of Haiku to a model.

    Args:
        model: a model that is built.
        params: {module path: {name: array}}.
        state: likewise, for running averages.
        names: as of `to_haiku`.
    """
    from_linen(model, modules.haiku_to_linen(params, state, _pairs(model, names)))


# ---------------------------------------------------------------------------------------------------------- safetensors


def _by_path(model: Any) -> dict[str, Variable]:
    return {
        (f"{part.path}/{name}" if part.path else name).replace("/", "."): variable
        for part in _parts(model)
        for name, variable in part.variables.items()
    }


def to_safetensors(model: Any, filename: str | os.PathLike[str], metadata: Mapping[str, str] | None = None) -> None:
    """Write the weights of a model, of layers of any kind, to a safetensors file: by path, with dots.

    Args:
        model: a model that is built.
        filename: where to; an existing file is replaced once the new one is complete.
        metadata: strings by name that are stored too.
    """
    arrays = {key: variable.value for key, variable in _by_path(model).items()}
    safetensors.save_file(safetensors.nested(arrays), filename, metadata)


def from_safetensors(model: Any, filename: str | os.PathLike[str], names: Names = None) -> None:
    """Assign the weights of a safetensors file that `to_safetensors` wrote to a model.

    Args:
        model: a model that is built.
        filename: the file.
        names: for each path of a weight, with dots, the name in the file; the same where there is no entry.
    """
    arrays = safetensors.load_file(filename, separator=_UNSPLIT)
    variables = _by_path(model)
    keys = {path: (names or {}).get(path, path) for path in variables}
    part = Part("", model, None, variables)
    problems = [f"no variable for {key} {np.shape(arrays[key])}" for key in arrays if key not in keys.values()]
    _assign(model, [(part, {path: np.asarray(arrays[key]) for path, key in keys.items() if key in arrays})], problems)

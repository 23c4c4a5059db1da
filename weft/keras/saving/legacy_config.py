"""Configs of Keras 2 as Keras 3 would write them: modules of classes, shapes of inputs, and calls of layers."""

from __future__ import annotations

import base64
from typing import Any

from weft.errors import FileFormatError
from weft.keras.core import registry

# Which table an argument of a layer is looked up in, by the end of its name.
_KINDS = {
    "initializer": "initializers",
    "regularizer": "regularizers",
    "constraint": "constraints",
    "learning_rate": "optimizers.schedules",
    "layer": "layers",
    "cell": "layers",
    "activation": "layers",
}
# Arguments that Keras 2 wrote and that its successors do not have, with the values that say nothing.
_GONE: dict[str, tuple[Any, ...]] = {
    "batch_input_shape": (),
    "ragged": (False, None),
    "sparse": (False, None),
    "time_major": (False,),
    "implementation": (0, 1, 2),
    "virtual_batch_size": (None,),
    "renorm": (False,),
    "renorm_clipping": (None,),
    "renorm_momentum": (0.99,),
    "fused": (None, True, False),
    "adjustment": (None,),
    "batch_size": (None,),
    "jit_compile": (False, True, None),
    "is_legacy_optimizer": (False, True),
    "decay": (0, 0.0, None),
    "build_input_shape": (),
    "interpolation_type": (None,),
}
_MODELS = ("Functional", "Model", "Sequential")
_LAMBDA = ("module", "function_type", "output_shape_type", "output_shape_module", "output_shape")


def modernize(config: dict[str, Any]) -> dict[str, Any]:
    """Return the config of a model in the form of Keras 3.

    Args:
        config: {"class_name": ..., "config": ...} as an .h5 file of any Keras has it.
    """
    name, inner = config.get("class_name"), config.get("config")
    if not isinstance(name, str):
        raise FileFormatError("The name of a class must be a string.", received=repr(name))
    if isinstance(inner, list):  # Sequential models of the first versions
        inner = {"layers": inner}
    if not isinstance(inner, dict):
        raise FileFormatError("The config of a model must be a dict.", received=type(inner).__name__)
    found = {**config, "config": inner, "registered_name": config.get("registered_name") or name}
    if _is_graph(inner):
        found["config"] = _graph(inner)
    elif isinstance(inner.get("layers"), list):
        found["config"] = _sequence(inner)
    return found


def _is_graph(config: dict[str, Any]) -> bool:
    return isinstance(config.get("layers"), list) and "input_layers" in config and "output_layers" in config


def _sequence(config: dict[str, Any]) -> dict[str, Any]:
    layers = [_layer(layer) for layer in config["layers"]]
    first = config["layers"][0] if config["layers"] else {}
    described = first.get("config") if isinstance(first, dict) else None
    shape = described.get("batch_input_shape") if isinstance(described, dict) else None
    if isinstance(described, dict) and shape is not None and first.get("class_name") != "InputLayer":
        dtype = described.get("dtype") if isinstance(described.get("dtype"), str) else "float32"
        layers.insert(0, {"class_name": "InputLayer", "config": {"batch_shape": shape, "dtype": dtype}})
        layers[0]["module"] = "keras.layers"
    return {**{key: value for key, value in config.items() if key != "build_input_shape"}, "layers": layers}


def _graph(config: dict[str, Any]) -> dict[str, Any]:
    described = [layer for layer in config["layers"] if isinstance(layer, dict)]
    if not any(isinstance(call, list) for layer in described for call in layer.get("inbound_nodes", ())):
        return {**config, "layers": [{**layer, **_layer(layer)} for layer in described]}  # calls as Keras 3 writes them
    # The calls of a model inside begin with that of its construction, which its config does not have.
    shifts = {
        layer.get("name"): 1 if layer.get("class_name") in _MODELS and _has_inputs(layer) else 0
        for layer in config["layers"]
        if isinstance(layer, dict) and not _is_modern(layer)
    }
    layers = []
    for layer in config["layers"]:
        found = _layer(layer)
        calls = layer.get("inbound_nodes", [])
        found["inbound_nodes"] = [call if isinstance(call, dict) else _call(call, shifts) for call in calls]
        layers.append(found)
    sequential = {layer.get("name") for layer in config["layers"] if layer.get("class_name") == "Sequential"}
    ends = {name: shift if name in sequential else 0 for name, shift in shifts.items()}
    for key in ("input_layers", "output_layers"):
        found = _shift_ends(config[key], ends)
        config = {**config, key: found[0] if isinstance(found, list) and len(found) == 1 else found}
    return {**config, "layers": layers}


def _has_inputs(layer: dict[str, Any]) -> bool:
    inner = layer.get("config")
    layers = inner.get("layers") if isinstance(inner, dict) else inner
    first = layers[0] if isinstance(layers, list) and layers and isinstance(layers[0], dict) else {}
    described = first.get("config")
    return first.get("class_name") == "InputLayer" or (
        isinstance(described, dict) and described.get("batch_input_shape") is not None
    )


def _shift_ends(ends: Any, shifts: dict[Any, int]) -> Any:
    if isinstance(ends, list) and len(ends) == 3 and isinstance(ends[0], str):
        return [ends[0], ends[1] - shifts.get(ends[0], 0), ends[2]]
    if isinstance(ends, dict):
        return {key: _shift_ends(end, shifts) for key, end in ends.items()}
    return [_shift_ends(end, shifts) for end in ends]


def _call(call: Any, shifts: dict[Any, int]) -> dict[str, Any]:
    """Convert a call `[[layer, call, result, arguments], ...]`, with its tensors and arguments."""

    def tensor(reference: Any) -> dict[str, Any]:
        name, node, index = reference[:3]
        history = [name, node - shifts.get(name, 0), index]
        return {"class_name": "__keras_tensor__", "config": {"keras_history": history}}

    def argument(value: Any) -> Any:
        is_tensor = isinstance(value, list) and len(value) in (3, 4) and isinstance(value[0], str)
        if is_tensor and value[0] == "_CONSTANT_VALUE":
            return value[2]
        if is_tensor and value[0] in shifts and all(isinstance(part, int) for part in value[1:3]):
            return tensor(value)
        if isinstance(value, list):
            return [argument(item) for item in value]
        return {key: argument(item) for key, item in value.items()} if isinstance(value, dict) else value

    references = [call] if call and isinstance(call[0], str) else call
    tensors = [argument(list(reference[:3])) for reference in references]
    keywords = references[0][3] if references and len(references[0]) > 3 else {}
    args = [tensors[0] if len(tensors) == 1 else tensors]
    return {"args": args, "kwargs": {key: argument(value) for key, value in keywords.items()}}


def _is_modern(described: dict[str, Any]) -> bool:
    return "module" in described


def _layer(described: Any, kind: str = "layers") -> dict[str, Any]:
    if not isinstance(described, dict) or not isinstance(described.get("class_name"), str):
        raise FileFormatError("A layer must be described by a dict.", received=repr(described)[:80])
    if _is_modern(described):
        return dict(described)
    name = described["class_name"]
    if name in _MODELS and kind == "layers":
        found = modernize(described)
        return {**found, "module": "keras"}
    config = described.get("config")
    if not isinstance(config, dict):
        raise FileFormatError("The config of a layer must be a dict.", received=type(config).__name__)
    found = {key: _argument(key, value) for key, value in config.items() if not _says_nothing(key, value)}
    if name == "InputLayer" and "batch_input_shape" in config:
        found["batch_shape"] = config["batch_input_shape"]
    if name == "Lambda":
        found = {**{key: value for key, value in found.items() if key not in _LAMBDA}, **_function(config)}
    if isinstance(found.get("axis"), list) and len(found["axis"]) == 1 and name.endswith("BatchNormalization"):
        found["axis"] = found["axis"][0]
    own = {key: value for key, value in described.items() if key not in ("config", "inbound_nodes")}
    return {**own, "module": f"keras.{kind}", "config": found, "registered_name": described.get("registered_name")}


def _says_nothing(key: str, value: Any) -> bool:
    return key in _GONE and (not _GONE[key] or any(value is each or value == each for each in _GONE[key]))


def _argument(key: str, value: Any) -> Any:
    """Convert an argument of a layer: nested objects get their module."""
    if isinstance(value, list):
        return [_argument(key.removesuffix("s"), item) for item in value]
    if not isinstance(value, dict) or "class_name" not in value or _is_modern(value):
        return value
    if key == "dtype":
        policy = value.get("config")
        return policy.get("name") if isinstance(policy, dict) else value
    kind = next((kind for end, kind in _KINDS.items() if key.endswith(end)), None)
    if kind is None or value.get("class_name", "").startswith("__"):
        return value
    return _layer(value, kind)


def _function(config: dict[str, Any]) -> dict[str, Any]:
    """Convert the function of a Lambda: a name, or code, which is a list in Keras 2."""
    function = config.get("function")
    if isinstance(function, list) and function and isinstance(function[0], str):
        code, defaults, closure = (*function, None, None)[:3]
        code = base64.b64encode(base64.b64decode(code)).decode("ascii")  # without the line ends of Keras 2
        value = {"code": code, "defaults": defaults, "closure": closure}
        return {"function": {"class_name": "__lambda__", "config": {"value": value}}}
    if isinstance(function, str):
        return {"function": {"class_name": "function", "module": None, "config": function, "registered_name": function}}
    return {}


# ------------------------------------------------------------------------------------------------------------ compiling


def compile_arguments(training: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `compile` that a training_config has, of Keras 2 or 3.

    Args:
        training: {"optimizer_config": ..., "loss": ..., "metrics": ..., ...}.
    """
    described = training.get("optimizer_config")
    if not isinstance(described, dict) or not isinstance(described.get("config"), dict):
        raise FileFormatError("A training_config must have an optimizer_config.", received=repr(described)[:80])
    config = {key: _argument(key, value) for key, value in described["config"].items() if not _says_nothing(key, value)}
    config = {key: registry.deserialize_keras_object(value) for key, value in config.items()}
    name = str(described.get("class_name"))
    optimizer = registry.find("optimizers", name if "/" not in name else name.rpartition(">")[2]).from_config(config)
    metrics = _restore(training.get("metrics"), "metrics")
    weighted = _restore(training.get("weighted_metrics"), "metrics")
    return {
        "optimizer": optimizer,
        "loss": _restore(training.get("loss"), "losses"),
        "metrics": metrics,
        "weighted_metrics": weighted,
        "loss_weights": training.get("loss_weights"),
    }


def _restore(value: Any, kind: str) -> Any:
    if isinstance(value, dict) and "class_name" in value:
        described = {**value}
        if value["class_name"] == "MeanMetricWrapper" and isinstance(value.get("config"), dict):
            return value["config"].get("name")  # a metric of Keras 2 that was a name
        if not _is_modern(value) and isinstance(value.get("config"), dict):
            inner = {key: item for key, item in value["config"].items() if key not in ("fn", "reduction")}
            if value["config"].get("reduction") not in (None, "auto"):
                inner["reduction"] = value["config"]["reduction"]
            described = {"module": f"keras.{kind}", **value, "config": inner}
        return registry.deserialize_keras_object(described, kind=kind)
    if isinstance(value, dict):
        return {key: _restore(item, kind) for key, item in value.items()}
    return [_restore(item, kind) for item in value] if isinstance(value, list) else value

"""Keras over Weft: layers, models, losses, metrics and optimizers with the names of Keras 3.

Submodules are imported when they are first used. See docs/design/keras.md.
"""

import importlib as _importlib
from typing import Any as _Any

from weft.errors import publish as _publish

_MODULES = (
    "activations",
    "applications",
    "backend",
    "callbacks",
    "config",
    "constraints",
    "convert",
    "datasets",
    "distillation",
    "distribution",
    "dtype_policies",
    "export",
    "initializers",
    "layers",
    "losses",
    "metrics",
    "mixed_precision",
    "models",
    "ops",
    "optimizers",
    "preprocessing",
    "quantizers",
    "random",
    "regularizers",
    "saving",
    "tree",
    "utils",
    "visualization",
    "wrappers",
)
# Names of the package itself, and where they are.
_NAMES = {
    "DTypePolicy": "core.policy",
    "FloatDTypePolicy": "core.policy",
    "Function": "graph.function",
    "Initializer": "initializers",
    "Input": "layers",
    "InputSpec": "core.spec",
    "KerasTensor": "graph.tensor",
    "Layer": "layers",
    "Loss": "losses",
    "Metric": "metrics",
    "Model": "models",
    "Operation": "graph.operation",
    "Optimizer": "optimizers",
    "Regularizer": "regularizers",
    "RematScope": "core.remat",
    "Sequential": "models",
    "StatelessScope": "core.scope",
    "Variable": "core.variable",
    "device": "core.devices",
    "name_scope": "core.names",
    "remat": "core.remat",
    "version": "core.config",
}


def __getattr__(name: str) -> _Any:
    if name in _NAMES:
        return getattr(_importlib.import_module(f"weft.keras.{_NAMES[name]}"), name)
    if name == "__version__":
        return __getattr__("version")()
    if name in _MODULES:
        try:
            return _importlib.import_module(f"weft.keras.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"weft.keras.{name}":
                raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_NAMES})


_publish(__name__, later=[*_MODULES, *_NAMES])

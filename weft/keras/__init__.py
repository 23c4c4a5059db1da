"""Keras over Weft: layers, models, losses, metrics and optimizers with the names of Keras 3.

Submodules are imported when they are first used. See docs/design/keras.md.
"""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING, Any as _Any

from weft.errors import publish as _publish

if _TYPE_CHECKING:
    from weft.keras import (
        activations as activations,
        applications as applications,
        backend as backend,
        callbacks as callbacks,
        config as config,
        constraints as constraints,
        convert as convert,
        datasets as datasets,
        distillation as distillation,
        distribution as distribution,
        dtype_policies as dtype_policies,
        export as export,
        initializers as initializers,
        layers as layers,
        losses as losses,
        metrics as metrics,
        mixed_precision as mixed_precision,
        models as models,
        ops as ops,
        optimizers as optimizers,
        preprocessing as preprocessing,
        quantizers as quantizers,
        random as random,
        regularizers as regularizers,
        saving as saving,
        tree as tree,
        utils as utils,
        visualization as visualization,
        wrappers as wrappers,
    )
    from weft.keras.core.config import version as version
    from weft.keras.core.devices import device as device
    from weft.keras.core.names import name_scope as name_scope
    from weft.keras.core.policy import DTypePolicy as DTypePolicy, FloatDTypePolicy as FloatDTypePolicy
    from weft.keras.core.remat import RematScope as RematScope, remat as remat
    from weft.keras.core.scope import StatelessScope as StatelessScope
    from weft.keras.core.spec import InputSpec as InputSpec
    from weft.keras.core.variable import Variable as Variable
    from weft.keras.graph.function import Function as Function
    from weft.keras.graph.operation import Operation as Operation
    from weft.keras.graph.tensor import KerasTensor as KerasTensor
    from weft.keras.initializers import Initializer as Initializer
    from weft.keras.layers import Input as Input, Layer as Layer
    from weft.keras.losses import Loss as Loss
    from weft.keras.metrics import Metric as Metric
    from weft.keras.models import Model as Model, Sequential as Sequential
    from weft.keras.optimizers import Optimizer as Optimizer
    from weft.keras.regularizers import Regularizer as Regularizer

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

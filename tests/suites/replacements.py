"""Names of peers that a look-up would not find: what their tests ask of a backend, and private helpers of tests."""

from __future__ import annotations

import contextlib
import functools
import json
import types
from collections.abc import Callable, Iterator
from typing import Any

from tests.suites.absence import PrivateName
from tests.suites.libraries import Library


def replacements(library: Library) -> dict[str, Any]:
    """Return the replacements for a library by their full paths."""
    return _MAKERS[library.name](library)


def _keras(library: Library) -> dict[str, Any]:
    import weft.keras as keras
    from weft.base.settings import config, find
    from weft.keras.core.context import get_keras_mask, set_keras_mask
    from weft.keras.core.remat import current_remat_mode
    from weft.keras.ops.classes import classes as operation_classes
    from weft.keras.training.trainer import Trainer

    # Keras's tests judge weft.keras as its users have it: with Weft's settings, not those of a program for JAX.
    for setting in ("checks", "strict_indices", "strict_narrowing"):
        config.update(setting, find(setting).default)

    class Operations(types.ModuleType):
        """A module of Keras's backend, answered by public operations of the same names."""

        def __init__(self, name: str, *sources: Any) -> None:
            super().__init__(name)
            self._sources = sources

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            for source in self._sources:
                if hasattr(source, name):
                    return getattr(source, name)
            raise PrivateName(f"{self.__name__}.{name}")

    backend = "keras.src.backend"
    found: dict[str, Any] = {
        # Tests branch on the backend's name; those written for JAX apply.
        **{f"{module}.backend": lambda: "jax" for module in (backend, f"{backend}.config", "keras.backend")},
        "keras.config.backend": lambda: "jax",
        f"{backend}.SUPPORTS_SPARSE_TENSORS": False,
        f"{backend}.SUPPORTS_RAGGED_TENSORS": False,
        f"{backend}.SUPPORTS_COMPLEX_DTYPES": True,
        f"{backend}.IS_THREAD_SAFE": True,
        f"{backend}.get_keras_mask": get_keras_mask,
        f"{backend}.set_keras_mask": set_keras_mask,
        f"{backend}.random": Operations(f"{backend}.random", keras.random),
        f"{backend}.jax.trainer.JAXTrainer": Trainer,
        f"{backend}.common.global_state.clear_session": keras.backend.clear_session,
        "keras.src.utils.removesuffix": str.removesuffix,
        # Outside of a graph of TensorFlow it returns its argument.
        "keras.src.utils.backend_utils.convert_tf_tensor": lambda outputs, inputs=None, dtype=None: outputs,
        f"{backend}.common.remat.get_current_remat_mode": current_remat_mode,
        "keras.src.utils.python_utils.removesuffix": str.removesuffix,
    }
    for operation in operation_classes.values():
        # Layers have classes of the same names, such as Add and Reshape.
        found[f"{operation.home}.{operation.__name__}"] = operation
    for name in ("numpy", "nn", "math", "linalg", "image"):
        found[f"{backend}.{name}"] = Operations(
            f"{backend}.{name}", keras.ops, *filter(None, [getattr(keras.ops, name, None)])
        )
    operations = (
        "convert_to_tensor convert_to_numpy is_tensor cast shape cond while_loop fori_loop scan vectorized_map map "
        "stop_gradient unstack slice slice_update scatter scatter_update associative_scan custom_gradient"
    )
    for name in operations.split():
        found[f"{backend}.{name}"] = found[f"{backend}.core.{name}"] = getattr(keras.ops, name)
    return found


def _optax(library: Library) -> dict[str, Any]:
    import jax

    @contextlib.contextmanager
    def x64_precision(enable_x64_precision: bool = True) -> Iterator[None]:
        before = jax.config.jax_enable_x64
        jax.config.update("jax_enable_x64", enable_x64_precision)
        try:
            yield
        finally:
            jax.config.update("jax_enable_x64", before)

    return {"optax._src.utils.x64_precision": x64_precision}


def _flax(library: Library) -> dict[str, Any]:
    # Weft's errors have classes of their own; the plugin notes a test that asks for Flax's as one of another class.
    names = json.loads(library.table.read_text(encoding="utf-8"))["flax.errors"]
    return {
        f"flax.errors.{name}": type(name, (Exception,), {"__module__": "flax.errors"})
        for name in names
        if name[0].isupper()
    }


def _haiku(library: Library) -> dict[str, Any]:
    import weft.haiku

    def with_config(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                with weft.haiku.config.context(**options):
                    return function(*args, **kwargs)

            return call

        return decorate

    return {"haiku._src.config.with_config": with_config}


_MAKERS = {"keras": _keras, "optax": _optax, "flax": _flax, "haiku": _haiku}

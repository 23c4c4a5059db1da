"""Names that Haiku keeps under `experimental`, and tools to look into models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft.errors import suggest as _suggest
from weft.haiku import config
from weft.haiku.dot import abstract_to_dot, to_dot
from weft.haiku.experimental import jaxpr_info
from weft.haiku.frames import current_frame, current_name, frames
from weft.haiku.layer_stack import LayerStackTransparencyMapping, layer_stack
from weft.haiku.lifting import (
    LiftWithStateUpdater,
    lift,
    lift_with_state,
    transparent_lift,
    transparent_lift_with_state,
)
from weft.haiku.module import MethodContext, force_name, intercept_methods, name_like, name_scope
from weft.haiku.parameters import (
    DO_NOT_STORE,
    GetterContext,
    ParamContext,
    custom_creator,
    custom_getter,
    get_current_state,
    get_initial_state,
    get_params,
    maybe_get_rng_sequence_state,
    replace_rng_sequence_state,
    reserve_rng_keys,
)
from weft.haiku.rng import PRNGSequence
from weft.haiku.stateful import eval_shape
from weft.haiku.summary import ArraySpec, MethodInvocation, ModuleDetails, eval_summary, tabulate

__all__ = [
    "DO_NOT_STORE",
    "ArraySpec",
    "GetterContext",
    "LayerStackTransparencyMapping",
    "LiftWithStateUpdater",
    "MethodContext",
    "MethodInvocation",
    "ModuleDetails",
    "ParamContext",
    "abstract_to_dot",
    "check_jax_usage",
    "current_name",
    "custom_creator",
    "custom_getter",
    "eval_summary",
    "fast_eval_shape",
    "force_name",
    "get_current_state",
    "get_initial_state",
    "get_params",
    "intercept_methods",
    "jaxpr_info",
    "layer_stack",
    "lift",
    "lift_with_state",
    "maybe_get_rng_sequence_state",
    "module_auto_repr",
    "name_like",
    "name_scope",
    "optimize_rng_use",
    "replace_rng_sequence_state",
    "rng_reserve_size",
    "tabulate",
    "to_dot",
    "transparent_lift",
    "transparent_lift_with_state",
]


def check_jax_usage(enabled: bool = True) -> bool:
    """Set whether state and keys in bare transformations are errors; returns the setting before."""
    before = config.current().check_jax_usage
    config.set(check_jax_usage=enabled)
    return before


def module_auto_repr(enabled: bool) -> bool:
    """Set whether a module is shown as the call that made it; returns the setting before."""
    before = config.current().module_auto_repr
    config.set(module_auto_repr=enabled)
    return before


def rng_reserve_size(size: int) -> int:
    """Set how many keys one split makes; returns the setting before."""
    before = config.current().rng_reserve_size
    config.set(rng_reserve_size=size)
    return before


def fast_eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`weft.eval_shape`; tracing random numbers costs little in Weft, so there is no shortcut to take."""
    shapes = eval_shape if frames.items else weft.eval_shape
    return shapes(fun, *args, **kwargs)


class _Counted(PRNGSequence):
    """Counts the keys that are drawn."""

    def __init__(self, key: Any):
        super().__init__(key)
        self.count = 0

    def __next__(self) -> Any:
        self.count += 1
        return super().__next__()


def optimize_rng_use(fun: Callable[..., Any]) -> Callable[..., Any]:
    """A function that draws all its keys with one split: it is traced once before, to count them."""

    def run(*args: Any, **kwargs: Any) -> Any:
        frame = current_frame("optimize_rng_use")
        if frame.sequence is None:
            return fun(*args, **kwargs)
        drawn: list[int] = []

        def counted(*args: Any, **kwargs: Any) -> Any:
            inner = current_frame("optimize_rng_use")
            sequence = _Counted(weft.random.PRNGKey(0))
            try:
                with inner.drawing_from(sequence):
                    return fun(*args, **kwargs)
            finally:
                drawn.append(sequence.count)

        eval_shape(counted, *args, **kwargs)
        if drawn[-1]:
            reserve_rng_keys(drawn[-1])
        return fun(*args, **kwargs)

    return run


_suggest(__name__)

"""Haiku's experimental names, and tools to inspect models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft.errors import suggest as _suggest
from weft.haiku import config
from weft.haiku.dot import abstract_to_dot as abstract_to_dot, to_dot as to_dot
from weft.haiku.experimental import jaxpr_info as jaxpr_info
from weft.haiku.frames import current_frame, current_name as current_name, frames
from weft.haiku.layer_stack import (
    LayerStackTransparencyMapping as LayerStackTransparencyMapping,
    layer_stack as layer_stack,
)
from weft.haiku.lifting import (
    LiftWithStateUpdater as LiftWithStateUpdater,
    lift as lift,
    lift_with_state as lift_with_state,
    transparent_lift as transparent_lift,
    transparent_lift_with_state as transparent_lift_with_state,
)
from weft.haiku.module import (
    MethodContext as MethodContext,
    force_name as force_name,
    intercept_methods as intercept_methods,
    name_like as name_like,
    name_scope as name_scope,
)
from weft.haiku.parameters import (
    DO_NOT_STORE as DO_NOT_STORE,
    GetterContext as GetterContext,
    ParamContext as ParamContext,
    custom_creator as custom_creator,
    custom_getter as custom_getter,
    get_current_state as get_current_state,
    get_initial_state as get_initial_state,
    get_params as get_params,
    maybe_get_rng_sequence_state as maybe_get_rng_sequence_state,
    replace_rng_sequence_state as replace_rng_sequence_state,
    reserve_rng_keys,
)
from weft.haiku.rng import PRNGSequence
from weft.haiku.stateful import eval_shape
from weft.haiku.summary import (
    ArraySpec as ArraySpec,
    MethodInvocation as MethodInvocation,
    ModuleDetails as ModuleDetails,
    eval_summary as eval_summary,
    tabulate as tabulate,
)


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
    """Set the number of keys from one split; return the previous one."""
    before = config.current().rng_reserve_size
    config.set(rng_reserve_size=size)
    return before


def fast_eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return `weft.eval_shape`: tracing random numbers is cheap in Weft, so there is no shortcut."""
    shapes = eval_shape if frames.items else weft.eval_shape
    return shapes(fun, *args, **kwargs)


class _Counted(PRNGSequence):
    """A sequence that counts the keys drawn from it."""

    def __init__(self, key: Any):
        super().__init__(key)
        self.count = 0

    def __next__(self) -> Any:
        self.count += 1
        return super().__next__()


def optimize_rng_use(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that draws all its keys with one split. It is traced once before, to count them."""

    def run(*args: Any, **kwargs: Any) -> Any:
        frame = current_frame("optimize_rng_use")
        if frame.sequence is None:
            return fun(*args, **kwargs)
        drawn: list[int] = []

        def count_keys(*args: Any, **kwargs: Any) -> Any:
            inner = current_frame("optimize_rng_use")
            sequence = _Counted(weft.random.PRNGKey(0))
            try:
                with inner.drawing_from(sequence):
                    return fun(*args, **kwargs)
            finally:
                drawn.append(sequence.count)

        eval_shape(count_keys, *args, **kwargs)
        if drawn[-1]:
            reserve_rng_keys(drawn[-1])
        return fun(*args, **kwargs)

    return run


_suggest(__name__)

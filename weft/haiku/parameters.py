"""Parameters, state and random keys inside of a transformed function."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, NamedTuple

import weft
from weft import numpy as wnp
from weft.errors import (
    ArgumentError,
    ImmutableCollectionError,
    MissingRngError,
    ParameterNotFoundError,
    ParameterShapeError,
    ScopeLeakError,
    user_line,
)
from weft.haiku.data_structures import to_haiku_dict
from weft.haiku.frames import Frame, ThreadStack, check_usage, current_frame, frames
from weft.haiku.rng import PRNGSequence, SequenceState
from weft.haiku.typing import Initializer, Params, State
from weft.modules.frontends import HAIKU


class DoNotStore:
    """The type of `DO_NOT_STORE`."""

    def __repr__(self) -> str:
        return "DO_NOT_STORE"

    @property
    def shape(self) -> tuple[int, ...]:
        """It has none."""
        raise ArgumentError("DO_NOT_STORE has no shape: a custom getter must put a value in its place.")

    @property
    def dtype(self) -> Any:
        """It has none."""
        raise ArgumentError("DO_NOT_STORE has no dtype: a custom getter must put a value in its place.")


DO_NOT_STORE = DoNotStore()
"""Returned by a custom creator or setter: the value is not stored. A custom getter then returns it."""


class GetterContext(NamedTuple):
    """The description of a parameter or state that custom creators and getters receive."""

    full_name: str
    module: Any
    original_dtype: Any
    original_shape: Sequence[int] | None
    original_init: Initializer | None
    lifted_prefix_name: str | None

    @property
    def module_name(self) -> str:
        """The path of the module that owns it."""
        return self.full_name.rpartition("/")[0]

    @property
    def name(self) -> str:
        """Its name within the module."""
        return self.full_name.rpartition("/")[2]


ParamContext = GetterContext


class SetterContext(NamedTuple):
    """The description of a state that custom setters receive."""

    full_name: str
    module: Any
    original_dtype: Any
    original_shape: Any
    lifted_prefix_name: str | None

    @property
    def module_name(self) -> str:
        """The path of the module that owns it."""
        return self.full_name.rpartition("/")[0]

    @property
    def name(self) -> str:
        """Its name within the module."""
        return self.full_name.rpartition("/")[2]


Getter = Callable[[Callable[[Any], Any], Any, GetterContext], Any]
Setter = Callable[[Callable[[Any], Any], Any, SetterContext], Any]
Creator = Callable[[Callable[..., Any], Sequence[int], Any, Initializer, GetterContext], Any]

_param_creators: ThreadStack[Creator] = ThreadStack()
_state_creators: ThreadStack[Creator] = ThreadStack()
_param_getters: ThreadStack[Getter] = ThreadStack()
_state_getters: ThreadStack[Getter] = ThreadStack()
_state_setters: ThreadStack[Setter] = ThreadStack()


@contextmanager
def _on(what: str, *stacks: ThreadStack[Any] | None, item: Any) -> Iterator[None]:
    current_frame(what)
    with ExitStack() as entered:
        for stack in stacks:
            if stack is not None:
                entered.enter_context(stack.push(item))
        yield


def custom_creator(creator: Creator, *, params: bool = True, state: bool = False) -> AbstractContextManager[None]:
    """Return a context in which new values are created by `creator(next_creator, shape, dtype, init, context)`.

    Args:
        creator: a function of the next creator, a shape, a dtype, an initializer and a context.
        params, state: whether it is for parameters, and for state.

    Returns:
        A context manager.

    >>> import weft.numpy as wnp
    >>> from weft import haiku
    >>> def halved(next_creator, shape, dtype, init, context):
    ...     return 0.5 * next_creator(shape, dtype, init)
    >>> def f():
    ...     with haiku.custom_creator(halved):
    ...         return haiku.get_parameter("w", (2,), init=wnp.ones)
    >>> haiku.transform(f).init(None)
    {'~': {'w': Array([0.5, 0.5], dtype=float32)}}
    """
    return _on("custom_creator", _param_creators if params else None, _state_creators if state else None, item=creator)


def custom_getter(getter: Getter, *, params: bool = True, state: bool = False) -> AbstractContextManager[None]:
    """Return a context in which values that are read go through `getter(next_getter, value, context)`.

    Args:
        getter: a function of the next getter, a value and a context.
        params, state: whether it is for parameters, and for state.

    Returns:
        A context manager.

    >>> import weft.numpy as wnp
    >>> from weft import haiku
    >>> def doubled(next_getter, value, context):
    ...     return 2 * next_getter(value)
    >>> def f():
    ...     with haiku.custom_getter(doubled):
    ...         return haiku.get_parameter("w", (2,), init=wnp.ones)
    >>> model = haiku.transform(f)
    >>> model.apply(model.init(None), None)
    Array([2., 2.], dtype=float32)
    """
    return _on("custom_getter", _param_getters if params else None, _state_getters if state else None, item=getter)


def custom_setter(setter: Setter) -> AbstractContextManager[None]:
    """Return a context in which states that are set go through `setter(next_setter, value, context)`."""
    return _on("custom_setter", _state_setters, item=setter)


def _chain(around: Sequence[Callable[..., Any]], innermost: Callable[..., Any], context: Any) -> Callable[..., Any]:
    """Nest functions around `innermost`, the first one outermost; each calls the next."""
    made = innermost
    for one in reversed(around):
        made = _around(one, made, context)
    return made


def _around(one: Callable[..., Any], following: Callable[..., Any], context: Any) -> Callable[..., Any]:
    return lambda *args: one(following, *args, context)


def lifted_prefix() -> str | None:
    """Return the path prefix of `hk.lift` during initialization, or None.

    It consists of the paths of the lifting modules, outermost first, each followed by a slash.
    """
    if not frames.items[-1].is_initializing:
        return None
    prefixes = [frame.lifting or getattr(frame.module, "lifting_prefix", "") for frame in frames.items]
    return "".join(f"{prefix}/" for prefix in prefixes if prefix) or None


# ---------------------------------------------------------------------------------------------------------- parameters


def get_parameter(name: str, shape: Sequence[int], dtype: Any = None, init: Initializer | None = None) -> Any:
    """Return the parameter `name` of the running module, which `init` initializes by `init(shape, dtype)`.

    Args:
        name: the name.
        shape: the shape; a parameter of another shape raises.
        dtype: the dtype; float32 by default.
        init: a function of shape and dtype.

    Returns:
        The value.

    >>> import weft.numpy as wnp
    >>> from weft import haiku
    >>> model = haiku.transform(lambda x: x * haiku.get_parameter("scale", (2,), init=wnp.ones))
    >>> model.init(None, wnp.ones(2))
    {'~': {'scale': Array([1., 1.], dtype=float32)}}
    """
    frame = current_frame("get_parameter")
    check_usage(frame, "get_parameter")
    dtype = wnp.float32 if dtype is None else dtype
    path = frame.path
    scope = frame.root.child(path)
    value = scope.get_variable("params", name)
    context = None
    if value is None or _param_getters.items:
        context = GetterContext(f"{path}/{name}", frame.module, dtype, shape, init, lifted_prefix())
    if value is None:

        def create(shape: Sequence[int], dtype: Any, init: Initializer | None) -> Any:
            if not frame.can_make_params:
                raise _missing(frame, path, name)
            if init is None:
                raise ArgumentError(
                    f"Parameter {name!r} of module {path!r} needs an initializer to be made: "
                    "hk.get_parameter(name, shape, init=wnp.zeros)."
                )
            return init(shape, dtype)

        value = _chain(_param_creators.items, create, context)(shape, dtype, init)
        if value is not DO_NOT_STORE:
            if not frame.can_make_params:
                raise _missing(frame, path, name)
            scope.put_variable("params", name, value)
    if _param_getters.items:
        value = _chain(_param_getters.items, lambda value: value, context)(value)
    if tuple(value.shape) != tuple(shape):
        raise ParameterShapeError(
            f"Parameter {name!r} of module {path!r} needs shape {tuple(shape)}.",
            at=user_line(),
            received=f"{'made by its initializer' if frame.can_make_params else 'stored'}: {tuple(value.shape)}",
            fix=[
                "give the module inputs of the sizes it was initialized with",
                "params = f.init(key, ...)   for new parameters",
            ],
        )
    return value


def _missing(frame: Frame, path: str, name: str) -> ParameterNotFoundError:
    params = frame.call.collections.get("params", {})
    here = ", ".join(params.get(path, {})) or "nothing"
    paths = [repr(key) for key in params]
    shown = ", ".join(paths[:12]) + (f", and {len(paths) - 12} more" if len(paths) > 12 else "")
    fixes = ["pass what init returned: f.apply(params, key, ...) with params = f.init(key, ...)"]
    if frame.is_initializing:
        fixes = ["make every parameter in the first step of a loop, and in every branch of a cond"]
    return ParameterNotFoundError(
        f"Module {path!r} has no parameter {name!r}.",
        at=user_line(),
        received=f"in {path!r}: {here}\nmodules: {shown or 'none'}",
        fix=fixes,
    )


def get_params() -> Params:
    """Return a copy of the parameters; during initialization, of those created so far."""
    return to_haiku_dict(current_frame("get_params").call.collections.get("params", {}))


# --------------------------------------------------------------------------------------------------------------- state


def _check_state(frame: Frame, what: str, path: str, name: str) -> None:
    if not frame.has_state:
        raise ImmutableCollectionError(
            f"Module {path!r} uses state {name!r} in a function that was transformed without state.",
            at=user_line(),
            received=f"hk.{what}({name!r}) under hk.transform",
            fix="hk.transform_with_state(f)   whose apply(params, state, key, ...) returns (result, state)",
        )


def get_state(
    name: str, shape: Sequence[int] | None = None, dtype: Any = wnp.float32, init: Initializer | None = None
) -> Any:
    """Return the present value of a state of the running module; initialize it by `init(shape, dtype)` if missing.

    Args:
        name: the name.
        shape: the shape.
        dtype: the dtype.
        init: a function of shape and dtype.

    Returns:
        The value.

    >>> import weft.numpy as wnp
    >>> from weft import haiku
    >>> def count():
    ...     steps = haiku.get_state("steps", (), init=wnp.zeros)
    ...     haiku.set_state("steps", steps + 1)
    ...     return steps
    >>> model = haiku.transform_with_state(count)
    >>> params, state = model.init(None)
    >>> model.apply(params, state, None)[1]
    {'~': {'steps': Array(1., dtype=float32)}}
    """
    frame = current_frame("get_state")
    check_usage(frame, "get_state")
    path = frame.path
    _check_state(frame, "get_state", path, name)
    scope = frame.root.child(path)
    value = scope.get_variable("state", name)
    context = None
    if value is None or _state_getters.items:
        context = GetterContext(f"{path}/{name}", frame.module, dtype, shape, init, lifted_prefix())
    if value is None:
        if init is None:
            here = ", ".join(scope.collection("state")) or "nothing"
            raise ParameterNotFoundError(
                f"Module {path!r} has no state {name!r}, and no initializer was given.",
                at=user_line(),
                received=f"in {path!r}: {here}",
                fix=[
                    f"hk.get_state({name!r}, shape, dtype, init=wnp.zeros)",
                    "pass the state that init or the last apply returned: f.apply(params, state, key, ...)",
                ],
            )
        if shape is None or dtype is None:
            raise ArgumentError(
                f"State {name!r} of module {path!r} needs a shape and a dtype to be made; got "
                f"shape={shape}, dtype={dtype}."
            )
        value = _chain(_state_creators.items, lambda shape, dtype, init: init(shape, dtype), context)(
            shape, dtype, init
        )
        if value is not DO_NOT_STORE:
            _store(scope, name, value)
    if _state_getters.items:
        value = _chain(_state_getters.items, lambda value: value, context)(value)
    return value


def _store(scope: Any, name: str, value: Any) -> None:
    if not scope.has_variable("initial", name):
        scope.put_variable("initial", name, value)
    scope.put_variable("state", name, value)


def set_state(name: str, value: Any) -> None:
    """Set a state of the module that runs.

    Args:
        name: the name.
        value: the value.

    >>> from weft import haiku
    >>> model = haiku.transform_with_state(lambda: haiku.set_state("last", 3.0))
    >>> model.init(None)[1]
    {'~': {'last': 3.0}}
    """
    frame = current_frame("set_state")
    check_usage(frame, "set_state")
    path = frame.path
    _check_state(frame, "set_state", path, name)
    if _state_setters.items:
        shape = weft.tree.map(lambda leaf: getattr(leaf, "shape", None), value)
        dtype = weft.tree.map(lambda leaf: getattr(leaf, "dtype", None), value)
        context = SetterContext(f"{path}/{name}", frame.module, dtype, shape, lifted_prefix())
        value = _chain(_state_setters.items, lambda value: value, context)(value)
        if value is DO_NOT_STORE:
            return
    _store(frame.root.child(path), name, value)


def get_initial_state() -> State:
    """Return a copy of the state with the first value of each entry."""
    return to_haiku_dict(current_frame("get_initial_state").call.collections.get("initial", {}))


def get_current_state() -> State:
    """Return a copy of the present state."""
    return to_haiku_dict(current_frame("get_current_state").call.collections.get("state", {}))


# --------------------------------------------------------------------------------------------------------- random keys


def _sequence(what: str) -> PRNGSequence:
    frame = current_frame(what)
    check_usage(frame, what)
    sequence = frame.sequence
    if sequence is None:
        which = "init" if frame.is_initializing else "apply"
        call = "f.init(key, ...)" if frame.is_initializing else "f.apply(params, key, ...)"
        raise MissingRngError(
            f"Module {frame.path!r} needs a random key, and {which} was given none.",
            at=user_line(),
            received="rng=None",
            fix=f"{call}   with key = weft.random.key(0)",
        )
    _check_drawing(frame)
    return sequence


def _check_drawing(frame: Frame) -> None:
    """Raise in a loop, whose iterations would draw equal keys, and where the state of the sequence would be lost."""
    now, began = weft.core.get_opaque_trace_state(), frame.keys[-1].trace
    is_loop = now.is_repeated_since(began)
    if is_loop or not now.is_same_program(began):
        why = "it would be the same in each iteration" if is_loop else "the next key could not be drawn outside"
        raise ScopeLeakError(
            f"Module {frame.path!r} draws a random key inside of a transformation that does not carry keys: {why}.",
            at=user_line(),
            received=now.describe(),
            fix=[HAIKU.lifted, HAIKU.keys],
        )


def next_rng_key() -> Any:
    """Return a new random key.

    Returns:
        A key. `init` and `apply` must have got one.

    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform(lambda: random.normal(haiku.next_rng_key(), (2,)))
    >>> model.apply({}, random.key(0)).shape
    (2,)
    """
    return next(_sequence("next_rng_key"))


def next_rng_keys(num: int) -> Any:
    """Return `num` new random keys as one array."""
    return wnp.stack(_sequence("next_rng_keys").take(num))


def maybe_next_rng_key() -> Any:
    """Return a new random key, or None if `rng` is None."""
    return None if current_frame("maybe_next_rng_key").sequence is None else next(_sequence("maybe_next_rng_key"))


def reserve_rng_keys(num: int) -> None:
    """Make the next `num` keys with one split."""
    _sequence("reserve_rng_keys").reserve(num)


def maybe_get_rng_sequence_state() -> SequenceState | None:
    """Return the state of the sequence of keys, or None if `rng` is None."""
    sequence = current_frame("maybe_get_rng_sequence_state").sequence
    return None if sequence is None else sequence.internal_state


def replace_rng_sequence_state(state: SequenceState) -> None:
    """Continue from a state of the sequence of keys."""
    frame = current_frame("replace_rng_sequence_state")
    check_usage(frame, "replace_rng_sequence_state")
    frame.keys[-1].trace = weft.core.get_opaque_trace_state()  # the new state belongs to this traced function
    _sequence("replace_rng_sequence_state").replace_internal_state(state)


@contextmanager
def with_rng(key: Any) -> Iterator[None]:
    """Draw keys from another key for the length of a `with`."""
    frame = current_frame("with_rng")
    check_usage(frame, "with_rng")
    with frame.drawing_from(PRNGSequence(key)):
        yield


def below(tree: Mapping[str, Mapping[str, Any]], path: str, others: Collection[str]) -> dict[str, Any]:
    """Return the values of a module, of those below it and of others that it used, by their full names."""
    return {
        f"{where}/{name}": value
        for where, values in tree.items()
        if where == path or where in others or where.startswith(f"{path}/")
        for name, value in values.items()
    }

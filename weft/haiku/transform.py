"""Transformations of functions that use modules into pairs of pure functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple, TypeVar

import weft
from weft.errors import ArgumentTypeError, ParameterNotFoundError, boundary, user_line
from weft.haiku import config
from weft.haiku.frames import Frame, frames
from weft.haiku.rng import as_sequence
from weft.modules.frontends import HAIKU
from weft.modules.scope import Call


class Transformed(NamedTuple):
    """`params = init(rng, ...)` and `result = apply(params, rng, ...)`.

    Args:
        init: a function of a key and the arguments that returns parameters.
        apply: a function of parameters, a key and the arguments that returns the result.

    >>> from weft import haiku
    >>> isinstance(haiku.transform(lambda x: x), haiku.Transformed)
    True
    """

    init: Callable[..., Any]
    apply: Callable[..., Any]


class TransformedWithState(NamedTuple):
    """`params, state = init(rng, ...)` and `result, state = apply(params, state, rng, ...)`.

    Args:
        init: a function of a key and the arguments that returns parameters and state.
        apply: a function of parameters, state, a key and the arguments that returns the result and the new state.

    >>> from weft import haiku
    >>> isinstance(haiku.transform_with_state(lambda x: x), haiku.TransformedWithState)
    True
    """

    init: Callable[..., Any]
    apply: Callable[..., Any]


class MultiTransformed(NamedTuple):
    """`params = init(rng, ...)` and a tree of functions `result = apply(params, rng, ...)`."""

    init: Callable[..., Any]
    apply: Any


class MultiTransformedWithState(NamedTuple):
    """`params, state = init(rng, ...)` and a tree of functions `result, state = apply(params, state, rng, ...)`."""

    init: Callable[..., Any]
    apply: Any


AnyTransformed = TypeVar(
    "AnyTransformed", Transformed, TransformedWithState, MultiTransformed, MultiTransformedWithState
)


@contextmanager
def running(params: Any, state: Any, rng: Any, what: str, has_state: bool = True) -> Iterator[Frame]:
    """Return a context with the frame of one run: of `init` if `params` is None, else of `apply`."""
    variables: dict[str, Any] = {} if params is None else {"params": params, "state": state, "initial": state}
    mutable = True if params is None else ("state", "initial")
    call = Call(variables, {}, mutable, {"initializing": params is None, "checks": []}, HAIKU)
    frame = Frame(call, as_sequence(rng, what), has_state)
    checked = weft.checking_leaks() if config.current().check_jax_usage else nullcontext()
    with checked, frames.push(frame):
        try:
            yield frame
        finally:
            frame.run.over = True
        for check in call.flags["checks"]:
            check()


def _nonempty(frame: Frame, collection: str) -> dict[str, Any]:
    """Return a collection of a frame, without empty modules."""
    tree = frame.call.collections.get(collection, {})
    return {path: dict(values) for path, values in tree.items() if values}


def _check_tree(tree: Any, what: str, signature: str) -> Any:
    """Validate the parameters or state that users pass; None is empty."""
    if tree is None:
        return {}
    if not isinstance(tree, Mapping):
        shape = getattr(tree, "shape", None)
        raise ArgumentTypeError(
            f"apply needs {what} as a dict of dicts.",
            received=f"{type(tree).__name__}{'' if shape is None else f' of shape {tuple(shape)}'}",
            fix=f"{signature}, in this order",
        )
    for path, values in tree.items():
        if not isinstance(values, Mapping):
            raise ArgumentTypeError(
                f"apply needs {what} as {{module path: {{name: array}}}}, but {path!r} is {type(values).__name__}.",
                fix="the parameters that init returned; weft.modules.convert makes them of nested dicts",
            )
    return tree


def _check_function(f: Any, what: str) -> None:
    if isinstance(f, (Transformed, TransformedWithState, MultiTransformed, MultiTransformedWithState)):
        raise ArgumentTypeError(
            f"{what} got a function that is transformed already.", fix="f.init and f.apply as they are"
        )
    if isinstance(f, type(weft.jit(len))):
        raise ArgumentTypeError(
            f"{what} got a function that is compiled already: its modules would run in the first call only.",
            received=f"weft.jit({getattr(f, '__name__', 'f')})",
            fix=f"weft.jit({what}(f).apply)",
        )
    if not callable(f):
        raise ArgumentTypeError(f"{what} needs a function, got {f!r}.")


def _make(f: Callable[..., Any], what: str, has_state: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return `init` and `apply` with parameters and state, for all frontends."""
    _check_function(f, what)
    signature = "apply(params, state, rng, ...)" if has_state else "apply(params, rng, ...)"

    def init(rng: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        with running(None, None, rng, "init(rng, ...)", has_state) as frame:
            f(*args, **kwargs)
            return _nonempty(frame, "params"), _nonempty(frame, "initial")

    def apply(params: Any, state: Any, rng: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        params = _check_tree(params, "params", signature)
        state = _check_tree(state, "state", signature)
        with running(params, state, rng, signature, has_state) as frame:
            result = f(*args, **kwargs)
            return result, _nonempty(frame, "state")

    for function in (init, apply):
        _sign(function, f)
        vars(function)["_original"] = f
    return boundary(init), boundary(apply)


def original_function(f: Any) -> Callable[..., Any]:
    """Return the function that was transformed into `f` (or its `init` or `apply`); other values unchanged."""
    inner = f.init if isinstance(f, (Transformed, TransformedWithState)) else f
    while not hasattr(inner, "_original") and hasattr(inner, "__wrapped__"):
        inner = inner.__wrapped__
    found: Callable[..., Any] = getattr(inner, "_original", f)
    return found


def _sign(function: Callable[..., Any], f: Callable[..., Any]) -> None:
    """Give `init` and `apply` signatures with their own arguments and those of `f`, and its name."""
    name = getattr(f, "__name__", type(f).__name__)
    function.__qualname__ = f"{name}.{function.__name__}"
    function.__doc__ = getattr(f, "__doc__", None)
    try:
        theirs = list(inspect.signature(f).parameters.values())
        own = [
            p.replace(kind=inspect.Parameter.POSITIONAL_ONLY)
            for p in inspect.signature(function).parameters.values()
            if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        ]
        taken = {p.name for p in own}
        if not taken & {p.name for p in theirs}:
            function.__signature__ = inspect.Signature([*own, *theirs])  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        return  # a callable without a signature keeps the general one


def transform_with_state(f: Callable[..., Any]) -> TransformedWithState:
    """Transform a function that uses parameters and state into pure `init` and `apply`.

    Args:
        f: a function.

    Returns:
        A `TransformedWithState`.

    >>> import weft.numpy as wnp
    >>> from weft import haiku
    >>> model = haiku.transform_with_state(lambda x: x * haiku.get_state("scale", (), init=wnp.ones))
    >>> params, state = model.init(None, 3.0)
    >>> model.apply(params, state, None, 3.0)[0]
    Array(3., dtype=float32)
    """
    return TransformedWithState(*_make(f, "hk.transform_with_state", True))


def transform(f: Callable[..., Any], *, apply_rng: bool = True) -> Transformed:
    """Transform a function that uses parameters into pure `init(rng, ...)` and `apply(params, rng, ...)`.

    Args:
        f: a function.
        apply_rng: must be True; `without_apply_rng` removes the argument.

    Returns:
        A `Transformed`.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform(lambda x: haiku.Linear(2)(x))
    >>> x = wnp.ones((1, 3))
    >>> model.apply(model.init(random.key(0), x), None, x).shape
    (1, 2)
    """
    init, apply = _make(f, "hk.transform", False)
    transformed = Transformed(_first(init), _without_state(apply))
    return transformed if apply_rng else without_apply_rng(transformed)


def _first(init: Callable[..., Any]) -> Callable[..., Any]:
    def init_params(rng: Any, *args: Any, **kwargs: Any) -> Any:
        return init(rng, *args, **kwargs)[0]

    return _like(init_params, init, "init")


def _without_state(apply: Callable[..., Any]) -> Callable[..., Any]:
    def apply_params(params: Any, rng: Any, *args: Any, **kwargs: Any) -> Any:
        return apply(params, {}, rng, *args, **kwargs)[0]

    return _like(apply_params, apply, "apply")


def _like(function: Callable[..., Any], other: Callable[..., Any], name: str) -> Callable[..., Any]:
    function.__name__, function.__qualname__, function.__doc__ = name, other.__qualname__, other.__doc__
    if (original := original_function(other)) is not other:
        vars(function)["_original"] = original
    return boundary(function)


def without_state(f: Any) -> Any:
    """Convert a transformed function with state to one without, in which using state is an error."""
    if isinstance(f, MultiTransformedWithState):
        applied = weft.tree.map(lambda apply: _stateless_apply(apply), f.apply)
        return MultiTransformed(_stateless_init(f.init), applied)
    if not isinstance(f, TransformedWithState):
        raise ArgumentTypeError(f"hk.without_state needs what hk.transform_with_state returned, got {f!r}.")
    return Transformed(_stateless_init(f.init), _stateless_apply(f.apply))


def _stateless_init(init: Callable[..., Any]) -> Callable[..., Any]:
    def init_params(rng: Any, *args: Any, **kwargs: Any) -> Any:
        params, state = init(rng, *args, **kwargs)
        if state:
            raise _uses_state(state)
        return params

    return _like(init_params, init, "init")


def _stateless_apply(apply: Callable[..., Any]) -> Callable[..., Any]:
    def apply_params(params: Any, rng: Any, *args: Any, **kwargs: Any) -> Any:
        result, state = apply(params, {}, rng, *args, **kwargs)
        if state:
            raise _uses_state(state)
        return result

    return _like(apply_params, apply, "apply")


def _uses_state(state: Mapping[str, Any]) -> Exception:
    return weft.errors.ImmutableCollectionError(
        f"Modules {', '.join(map(repr, state))} use state in a function that was transformed without state.",
        at=user_line(),
        fix="hk.transform_with_state(f)   whose apply(params, state, key, ...) returns (result, state)",
    )


def with_empty_state(f: Any) -> Any:
    """Convert a transformed function without state to one with a state that is always empty."""

    def with_state(apply: Callable[..., Any]) -> Callable[..., Any]:
        def apply_empty(params: Any, state: Any, rng: Any, *args: Any, **kwargs: Any) -> Any:
            if state:
                raise ParameterNotFoundError(
                    "The function has no state, but was given some.",
                    at=user_line(),
                    received=f"state of modules {', '.join(map(repr, state))}",
                    fix="hk.transform_with_state(f)   for a function that uses state",
                )
            return apply(params, rng, *args, **kwargs), {}

        return _like(apply_empty, apply, "apply")

    def init_empty(rng: Any, *args: Any, **kwargs: Any) -> Any:
        return f.init(rng, *args, **kwargs), {}

    if isinstance(f, MultiTransformed):
        return MultiTransformedWithState(_like(init_empty, f.init, "init"), weft.tree.map(with_state, f.apply))
    if not isinstance(f, Transformed):
        raise ArgumentTypeError(f"hk.with_empty_state needs what hk.transform returned, got {f!r}.")
    return TransformedWithState(_like(init_empty, f.init, "init"), with_state(f.apply))


def without_apply_rng(f: AnyTransformed) -> AnyTransformed:
    """Convert a transformed function to one whose `apply` takes no `rng`.

    Args:
        f: what `transform` or `transform_with_state` returned.

    Returns:
        The same with an `apply` that takes no key.

    >>> from weft import haiku
    >>> model = haiku.without_apply_rng(haiku.transform(lambda x: 2 * x))
    >>> model.apply({}, 3)
    6
    """

    def without(apply: Callable[..., Any]) -> Callable[..., Any]:
        def apply_params(params: Any, *args: Any, **kwargs: Any) -> Any:
            _refuse_rng(kwargs)
            return apply(params, None, *args, **kwargs)

        def apply_state(params: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
            _refuse_rng(kwargs)
            return apply(params, state, None, *args, **kwargs)

        stateful = isinstance(f, (TransformedWithState, MultiTransformedWithState))
        return _like(apply_state if stateful else apply_params, apply, "apply")

    if isinstance(f, (MultiTransformed, MultiTransformedWithState)):
        return f._replace(apply=weft.tree.map(without, f.apply))
    if not isinstance(f, (Transformed, TransformedWithState)):
        raise ArgumentTypeError(f"hk.without_apply_rng needs a transformed function, got {f!r}.")
    return f._replace(apply=without(f.apply))


def _refuse_rng(kwargs: Mapping[str, Any]) -> None:
    if "rng" in kwargs:
        raise ArgumentTypeError(
            "This apply takes no `rng`, since hk.without_apply_rng was used.",
            fix=("f.apply(params, x)   without a key", "hk.transform(f) without hk.without_apply_rng, to use keys"),
        )


def multi_transform_with_state(f: Callable[[], tuple[Callable[..., Any], Any]]) -> MultiTransformedWithState:
    """Transform a function that returns a function for `init` and a tree of functions, with parameters and state."""
    return MultiTransformedWithState(*_make_multi(f, "hk.multi_transform_with_state", True))


def multi_transform(f: Callable[[], tuple[Callable[..., Any], Any]]) -> MultiTransformed:
    """Transform a function that returns a function for `init` and a tree of functions, with parameters."""
    init, applied = _make_multi(f, "hk.multi_transform", False)
    return MultiTransformed(_first(init), weft.tree.map(_without_state, applied))


def _make_multi(f: Callable[[], Any], what: str, has_state: bool) -> tuple[Callable[..., Any], Any]:
    _check_function(f, what)
    # A first run determines the number of functions; its parameters are discarded.
    with running(None, None, None, what, has_state):
        pair = f()
    if not (isinstance(pair, tuple) and len(pair) == 2):
        raise ArgumentTypeError(f"{what} needs a function that returns (init, tree of functions), got {pair!r}.")
    functions, tree = weft.tree.flatten(pair[1])

    init, _ = _make(lambda *args, **kwargs: f()[0](*args, **kwargs), what, has_state)

    def make_apply(i: int) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            return weft.tree.leaves(f()[1])[i](*args, **kwargs)

        run.__name__ = getattr(functions[i], "__name__", f"function {i}")
        return _make(run, what, has_state)[1]

    return init, weft.tree.unflatten(tree, [make_apply(i) for i in range(len(functions))])

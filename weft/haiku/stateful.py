"""Weft's transformations and control flow for functions that use modules.

State and random keys are threaded through: writes of the function become results and are written outside. During
initialization new variables become results too; loops create them in their first step, which runs before the loop, and
`cond` and `switch` in a run of each branch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import weft
from weft import lax, numpy as wnp
from weft.errors import (
    ArgumentError,
    ArgumentTypeError,
    AxisSpecError,
    MissingRngError,
    ParameterNotFoundError,
    boundary,
    user_line,
)
from weft.haiku.frames import Frame, current_frame, frames
from weft.haiku.rng import PRNGSequence
from weft.modules.frontends import HAIKU
from weft.modules.scope import Call

_OUT = ("params", "state", "initial")


class Outcome(NamedTuple):
    """The writes of a function: collections, and the sequence of keys."""

    collections: dict[str, Any]
    rng: Any


def _rng_state(frame: Frame) -> Any:
    return None if frame.sequence is None else frame.sequence.internal_state


def _own(frame: Frame, state: Any, rng: Any, may_make: bool, own_names: bool) -> Frame:
    """Return a frame of its own for a function under a transformation. `rng` is a state of a sequence."""
    collections = dict(frame.call.collections)
    collections["state"] = state
    mutable: Any = _OUT if may_make and frame.can_make_params else ("state", "initial")
    call = Call(collections, {}, mutable, frame.call.flags, HAIKU)
    sequence = None if rng is None else PRNGSequence(rng)
    return frame.within(call, sequence, own_names)


def _outcome(frame: Frame) -> Outcome:
    return Outcome(frame.call.updates(), _rng_state(frame))


def _put(frame: Frame, outcome: Outcome) -> None:
    """Write into a frame what a function inside has changed."""
    for name, tree in outcome.collections.items():
        if frame.root.is_mutable(name):
            frame.call.collections[name] = tree
    if frame.sequence is not None and outcome.rng is not None:
        frame.sequence.replace_internal_state(outcome.rng)


def _inside(frame: Frame, fun: Callable[..., Any], own_names: bool, may_make: bool = True) -> Callable[..., Any]:
    """Convert `fun` to a function of state, keys and its arguments that returns its result and the outcome."""

    def run(state: Any, rng: Any, *args: Any, **kwargs: Any) -> Any:
        inner = _own(frame, state, rng, may_make, own_names)
        with frames.push(inner):
            return fun(*args, **kwargs), _outcome(inner)

    return run


def _state(frame: Frame) -> Any:
    return frame.call.collections.get("state", {})


# ----------------------------------------------------------------------------------------------------- differentiation


def value_and_grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable[..., Any]:
    """Apply `weft.value_and_grad` to a function that uses modules."""

    @functools.wraps(fun)
    def run(*args: Any, **kwargs: Any) -> Any:
        frame = current_frame("value_and_grad")
        pure = _inside(frame, fun, own_names=True)

        def loss(*args: Any, **kwargs: Any) -> Any:
            result, outcome = pure(_state(frame), _rng_state(frame), *args, **kwargs)
            value, aux = result if has_aux else (result, None)
            return value, (aux, outcome)

        derivative = weft.value_and_grad(loss, argnums, has_aux=True, holomorphic=holomorphic)
        (value, (aux, outcome)), gradient = derivative(*args, **kwargs)
        _put(frame, outcome)
        return ((value, aux) if has_aux else value), gradient

    return run


def grad(
    fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, holomorphic: bool = False
) -> Callable[..., Any]:
    """Apply `weft.grad` to a function that uses modules."""
    both = value_and_grad(fun, argnums, has_aux, holomorphic)

    @functools.wraps(fun)
    def run(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return run


def remat(
    fun: Callable[..., Any],
    *,
    prevent_cse: bool = True,
    policy: Any = None,
    static_argnums: int | Sequence[int] = (),
    concrete: Any = None,
) -> Callable[..., Any]:
    """Apply `weft.checkpoint` to a function that uses modules: values are recomputed for gradients.

    Args:
        fun: a function.
        prevent_cse: whether the second computation is fenced off from the first.
        policy: which results are stored.
        static_argnums: arguments that are Python values.
        concrete: accepted for compatibility.

    Returns:
        A function like `fun`.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform(lambda x: haiku.remat(haiku.Linear(2))(x))
    >>> x = wnp.ones((1, 3))
    >>> model.apply(model.init(random.key(0), x), None, x).shape
    (1, 2)
    """
    if concrete:
        raise ArgumentError("hk.remat: concrete=True is not supported; use static_argnums.")

    @functools.wraps(fun)
    def run(*args: Any, **kwargs: Any) -> Any:
        frame = current_frame("remat")
        names = [one.copy() for one in frame.names]
        last: list[Any] = []

        def pure(state: Any, rng: Any, *args: Any, **kwargs: Any) -> Any:
            inner = _own(frame, state, rng, True, True)
            inner.names = [one.copy() for one in names]
            last[:] = [inner.names]
            with frames.push(inner):
                return fun(*args, **kwargs), _outcome(inner)

        argnums = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
        shifted = tuple(i + 2 if i >= 0 else i for i in argnums)
        again = weft.checkpoint(pure, prevent_cse=prevent_cse, policy=policy, static_argnums=shifted)
        result, outcome = again(_state(frame), _rng_state(frame), *args, **kwargs)
        _advance(frame, last[0] if last else names)
        _put(frame, outcome)
        return result

    return run


def _advance(frame: Frame, names: list[Any]) -> None:
    """Reserve names outside that were given out inside."""
    for ours, theirs in zip(frame.names, names, strict=True):
        ours.counts, ours.taken = theirs.counts.copy(), set(theirs.taken)


@boundary  # the outermost function, on which users set `require_split_rng`
def vmap(
    fun: Callable[..., Any],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Any = None,
    axis_size: int | None = None,
    *,
    split_rng: bool | None = None,
    spmd_axis_name: Any = None,
) -> Callable[..., Any]:
    """Apply `weft.vmap` to a function that uses modules, with the same parameters and state for all elements.

    With `split_rng` each element draws its own keys; without, all draw the same.

    Args:
        fun: a function.
        in_axes, out_axes: the mapped axes of arguments and results.
        axis_name: a name for the axis.
        axis_size: the number of elements, where no argument has the axis.
        split_rng: whether keys differ between elements.
        spmd_axis_name: axes of a mesh to split it over.

    Returns:
        A function like `fun`.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform(lambda x: haiku.vmap(haiku.Linear(2), split_rng=False)(x))
    >>> x = wnp.ones((4, 3))
    >>> model.apply(model.init(random.key(0), x), None, x).shape
    (4, 2)
    """
    if split_rng is None:
        if vmap.require_split_rng:  # type: ignore[attr-defined]
            raise ArgumentTypeError(
                "hk.vmap needs split_rng=True (each element draws its own keys) or split_rng=False (all draw the "
                "same); hk.vmap.require_split_rng = False makes False the default, for code that cannot be changed."
            )
        split_rng = False
    if in_axes is None and axis_size is None:
        raise ArgumentError("hk.vmap needs an axis to map: in_axes is None and so is axis_size.")
    if not isinstance(in_axes, (int, tuple, type(None))):
        in_axes = tuple(in_axes) if isinstance(in_axes, list) else (in_axes,)

    @functools.wraps(fun)
    def run(*args: Any) -> Any:
        frame = current_frame("vmap")
        size = axis_size if axis_size is not None else _infer_size(args, in_axes)
        rng, rng_axis = _rng_state(frame), None
        if split_rng and frame.sequence is not None:
            # One key per element, the start of its sequence.
            rng, rng_axis = (wnp.stack(frame.sequence.take(size)), ()), (0, ())
        pure = _inside(frame, fun, own_names=True)

        def element(rng: Any, args: tuple[Any, ...]) -> Any:
            result, outcome = pure(_state(frame), rng, *args)
            return result, outcome.collections, None if split_rng else outcome.rng

        axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
        mapped = weft.vmap(
            element,
            in_axes=(rng_axis, axes),
            out_axes=(out_axes, None, None),
            axis_name=axis_name,
            axis_size=size,
            spmd_axis_name=spmd_axis_name,
        )
        try:
            result, collections, after = mapped(rng, args)
        except AxisSpecError as error:
            if not (split_rng and frame.is_initializing):
                raise
            raise MissingRngError(
                f"hk.vmap in {frame.path!r} with split_rng=True would make parameters that differ from element to "
                "element, but parameters are shared.",
                at=user_line(),
                fix=["split_rng=not hk.running_init()", "hk.lift with weft.vmap   for parameters of each element"],
            ) from error
        _put(frame, Outcome(collections, after))
        return result

    return run


vmap.require_split_rng = True  # type: ignore[attr-defined]


def _infer_size(args: tuple[Any, ...], in_axes: Any) -> int:
    axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
    for arg, axis in zip(args, axes, strict=True):
        for leaf, one in zip(weft.tree.leaves(arg), _leaf_axes(arg, axis), strict=True):
            if one is not None:
                return int(leaf.shape[one])
    raise ArgumentError(f"hk.vmap needs at least one mapped array, got in_axes={in_axes}.")


def _leaf_axes(arg: Any, axis: Any) -> list[Any]:
    """Return the axis of each leaf of an argument, for a prefix of axes."""
    if axis is None or isinstance(axis, int):
        return [axis] * len(weft.tree.leaves(arg))
    prefixes = weft.tree.map(
        lambda one, part: [one] * len(weft.tree.leaves(part)), axis, arg, is_leaf=lambda one: one is None
    )
    return [
        one
        for part in weft.tree.leaves(prefixes, is_leaf=lambda item: isinstance(item, list) and _is_flat(item))
        for one in (part if isinstance(part, list) else [part])
    ]


def _is_flat(items: list[Any]) -> bool:
    return all(item is None or isinstance(item, int) for item in items)


def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Apply `weft.eval_shape` to a function that uses modules, without changing anything.

    Args:
        fun: a function.
        *args, **kwargs: its arguments.

    Returns:
        The result with a `ShapeDtypeStruct` for each array.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform(lambda x: print(haiku.eval_shape(haiku.Linear(2), x).shape))
    >>> _ = model.init(random.key(0), wnp.ones((1, 3)))
    (1, 2)
    """
    frame = current_frame("eval_shape")
    pure = _inside(frame, fun, own_names=True)
    state, rng = _state(frame), _rng_state(frame)
    return weft.eval_shape(lambda *args, **kwargs: pure(state, rng, *args, **kwargs)[0], *args, **kwargs)


# --------------------------------------------------------------------------------------------------------------- loops


def _key(frame: Frame) -> Any:
    """Return the key that a loop carries, that of the sequence; keys in reserve wait until the loop ends."""
    return None if frame.sequence is None else frame.sequence.internal_state[0]


def _put_loop(frame: Frame, state: Any, key: Any, names: list[Any] = []) -> None:  # noqa: B006 (only read)
    if frame.root.is_mutable("state"):
        frame.call.collections["state"] = state
    if frame.sequence is not None:
        frame.sequence.replace_internal_state((key, frame.sequence.internal_state[1]))
    if names:
        _advance(frame, names)


def _step(frame: Frame, fun: Callable[..., Any], names: list[Any], after: list[Any]) -> Callable[..., Any]:
    """Convert `fun` to a function of state and key that also returns both afterwards; it creates no variables.

    Names start from `names`; `after` receives the names given out at the end.
    """
    existing = {path: set(values) for path, values in _state(frame).items()}

    def run(state: Any, key: Any, *args: Any) -> Any:
        inner = _own(frame, state, None if key is None else (key, ()), False, True)
        inner.names = [one.copy() for one in names]
        with frames.push(inner):
            result = fun(*args)
        after[:] = inner.names
        changed = inner.call.collections["state"]
        new = [f"{p}/{n}" for p, values in changed.items() for n in values if n not in existing.get(p, ())]
        if new:
            raise ParameterNotFoundError(
                f"State {', '.join(new)} cannot be created inside of a loop or branch.",
                at=user_line(),
                fix=["call init with the same arguments, and pass the state it returned", "make the state before it"],
            )
        return result, changed, _key(inner)

    return run


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    length: int | None = None,
    reverse: bool = False,
    unroll: int = 1,
) -> tuple[Any, Any]:
    """Apply `weft.lax.scan` to a function that uses modules; all steps use the same parameters.

    Args:
        f: a function of a carry and a slice.
        init: the first carry.
        xs: a tree of arrays with one leading size.
        length: the number of iterations.
        reverse: whether to go from the last slice to the first.
        unroll: the number of iterations to unroll.

    Returns:
        A pair of the last carry and the stacked outputs.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform(lambda x: haiku.scan(lambda c, y: (haiku.Linear(3)(c), None), x, None, length=2)[0])
    >>> x = wnp.ones((1, 3))
    >>> model.apply(model.init(random.key(0), x), None, x).shape
    (1, 3)
    """
    frame = current_frame("scan")
    if length is None:
        leaves = weft.tree.leaves(xs)
        if not leaves:
            raise ArgumentError(f"hk.scan in {frame.path!r} needs xs or a length.")
        length = int(leaves[0].shape[0])
    names = [one.copy() for one in frame.names]
    first = None
    if frame.is_initializing and length == 0:
        slices = weft.tree.map(lambda x: wnp.zeros(x.shape[1:], x.dtype), xs)
        _try(frame, names, f, (init, slices))
    if frame.is_initializing and length > 0:
        # The first step runs outside of the loop, so that it can make parameters.
        at = -1 if reverse else 0
        init, first = f(init, weft.tree.map(lambda x: x[at], xs))
        xs = weft.tree.map(lambda x: x[:-1] if reverse else x[1:], xs)
        length -= 1
        if length == 0:
            return init, weft.tree.map(lambda y: wnp.asarray(y)[None], first)
    after: list[Any] = []
    step = _step(frame, f, names, after)

    def body(carry: Any, x: Any) -> Any:
        value, state, key = carry
        (value, y), state, key = step(state, key, value, x)
        return (value, state, key), y

    carry = (init, _state(frame), _key(frame))
    (value, state, key), ys = lax.scan(body, carry, xs, length=length, reverse=reverse, unroll=unroll)
    _put_loop(frame, state, key, after)
    if first is not None:
        ys = weft.tree.map(
            lambda y, rest: wnp.concatenate([rest, wnp.asarray(y)[None]] if reverse else [wnp.asarray(y)[None], rest]),
            first,
            ys,
        )
    return value, ys


def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """Apply `weft.lax.map` to a function that uses modules."""
    return scan(lambda carry, x: (carry, f(x)), None, xs)[1]


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init_val: Any) -> Any:
    """Apply `weft.lax.fori_loop` to a function that uses modules.

    Args:
        lower, upper: the bounds; `upper` is not included.
        body_fun: a function of the index and the carry.
        init_val: the first carry.

    Returns:
        The last carry.

    >>> import weft.numpy as wnp
    >>> from weft import random
    >>> from weft import haiku
    >>> model = haiku.transform(lambda x: haiku.fori_loop(0, 2, lambda i, c: haiku.Linear(3)(c), x))
    >>> x = wnp.ones((1, 3))
    >>> model.apply(model.init(random.key(0), x), None, x).shape
    (1, 3)
    """
    frame = current_frame("fori_loop")
    names = [one.copy() for one in frame.names]
    if frame.is_initializing:
        _try(frame, names, body_fun, (lower, init_val))
    after: list[Any] = []
    step = _step(frame, body_fun, names, after)

    def body(i: Any, carry: Any) -> Any:
        value, state, key = carry
        return step(state, key, i, value)

    value, state, key = lax.fori_loop(lower, upper, body, (init_val, _state(frame), _key(frame)))
    _put_loop(frame, state, key, after)
    return value


def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any) -> Any:
    """Apply `weft.lax.while_loop` to functions that use modules; the condition changes no state."""
    frame = current_frame("while_loop")
    names = [one.copy() for one in frame.names]
    if frame.is_initializing:
        _try(frame, names, cond_fun, (init_val,))
        _try(frame, names, body_fun, (init_val,))
    after: list[Any] = []
    step, condition = _step(frame, body_fun, names, after), _step(frame, cond_fun, names, [])

    def goes_on(carry: Any) -> Any:
        value, state, key = carry
        return condition(state, key, value)[0]

    def body(carry: Any) -> Any:
        value, state, key = carry
        return step(state, key, value)

    value, state, key = lax.while_loop(goes_on, body, (init_val, _state(frame), _key(frame)))
    _put_loop(frame, state, key, after)
    return value


def _try(frame: Frame, names: list[Any], fun: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Run a function for the parameters and states it makes; states stay as they were, or as they were made.

    Names start from `names`, and names given out stay available.
    """
    before = {path: dict(values) for path, values in _state(frame).items()}
    saved, frame.names = frame.names, [one.copy() for one in names]
    try:
        fun(*weft.tree.map(wnp.asarray, args))  # convert arguments as the transformation does
    finally:
        frame.names = saved
    initial = frame.call.collections.get("initial", {})
    state = {path: {name: initial[path][name] for name in values} for path, values in _state(frame).items()}
    for path, values in before.items():
        state.setdefault(path, {}).update(values)
    if frame.root.is_mutable("state"):
        frame.call.collections["state"] = state


# ------------------------------------------------------------------------------------------------------------ branches

_MISSING = object()


def cond(
    pred: Any,
    true_fun: Callable[..., Any],
    false_fun: Callable[..., Any],
    *operands: Any,
    operand: Any = _MISSING,
) -> Any:
    """Apply `weft.lax.cond` to functions that use modules."""
    if operand is not _MISSING:
        if operands:
            raise ArgumentError("hk.cond takes operands or operand=, not both.")
        operands = (operand,)
    # The form with an operand for each branch: pred, true_operand, true_fun, false_operand, false_fun.
    if not callable(true_fun) and len(operands) == 2 and callable(operands[1]) and callable(false_fun):
        true_operand, function, (false_operand, other) = true_fun, false_fun, operands
        return _branches("cond", pred, [lambda _, x: other(x), lambda x, _: function(x)], (true_operand, false_operand))
    return _branches("cond", pred, [false_fun, true_fun], operands)


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """Apply `weft.lax.switch` to functions that use modules."""
    if not branches:
        raise ArgumentError("hk.switch needs at least one branch.")
    return _branches("switch", index, list(branches), operands)


def _branches(what: str, index: Any, branches: list[Callable[..., Any]], operands: tuple[Any, ...]) -> Any:
    frame = current_frame(what)
    names = [one.copy() for one in frame.names]
    # Equal branches are traced once.
    distinct = {id(branch): branch for branch in branches}

    def chosen() -> Any:
        each = {one: _step(frame, branch, names, []) for one, branch in distinct.items()}
        steps = [each[id(branch)] for branch in branches]
        state, key = _state(frame), _key(frame)
        if what == "cond":
            result, state, key = lax.cond(index, steps[1], steps[0], state, key, *operands)
        else:
            result, state, key = lax.switch(index, steps, state, key, *operands)
        _put_loop(frame, state, key)
        return result

    if not frame.is_initializing:
        return chosen()
    try:
        return chosen()  # as in apply, with the same keys: all parameters exist now
    except ParameterNotFoundError:
        for branch in distinct.values():
            _try(frame, names, branch, operands)
        return chosen()

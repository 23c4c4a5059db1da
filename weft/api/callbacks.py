"""`pure_callback`, `io_callback` and the debugging callbacks, on functions of trees."""

from __future__ import annotations

import code
import contextlib
import logging
import string
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.api.flat import check_leaves, get_name, structure_differences
from weft.base import dtypes, tree
from weft.base.errors import ArgumentError, ArgumentTypeError, JaxRuntimeError
from weft.base.source import is_internal, user_line
from weft.ir.context import current_line
from weft.ir.types import ShapeDtypeStruct, array_type, is_value
from weft.primitives.control import callback as primitives
from weft.runtime.promise import barriers
from weft.trace.refs import Ref

logger = logging.getLogger("weft")


def result_structure(result_shape_dtypes: Any) -> tuple[tuple[Any, ...], Any]:
    """Return the types of the leaves of a callback's result, and its tree."""
    leaves, treedef = tree.flatten(result_shape_dtypes, is_leaf=lambda x: isinstance(x, ShapeDtypeStruct))
    types = []
    for leaf in leaves:
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            what = "result_shape_dtypes must be a tree of ShapeDtypeStruct (or arrays)."
            raise ArgumentTypeError(what, received=f"{leaf!r} in it")
        types.append(array_type(tuple(leaf.shape), dtypes.canonicalize_dtype(leaf.dtype, allow_extended_dtype=True)))
    return tuple(types), treedef


def flat_callback(callback: Callable[..., Any], in_tree: Any, out_tree: Any, what: str) -> Callable[..., list[Any]]:
    """Return the callback as a function of flat NumPy arrays that returns a flat list and checks its structure."""

    def flat(*arrays: Any) -> list[Any]:
        args, kwargs = tree.unflatten(in_tree, arrays)
        result = callback(*args, **kwargs)
        if out_tree is None:
            return []
        leaves, found = tree.flatten(result)
        if found != out_tree:
            raise JaxRuntimeError(
                f"{what} of {get_name(callback)}: the function must return the structure of result_shape_dtypes.",
                received=structure_differences(out_tree, found, ()),
                fix="make result_shape_dtypes agree with what the function returns",
                at=current_line(),
            )
        return leaves

    flat.__name__ = get_name(callback)
    return flat


def pure_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    sharding: Any = None,
    vmap_method: str | None = None,
    **kwargs: Any,
) -> Any:
    """Call a Python function without side effects on NumPy arrays from inside a program.

    `vmap_method` says how to batch it: 'sequential', 'expand_dims', 'broadcast_all' or 'legacy_vectorized'.

    Args:
        callback: a function of NumPy arrays that returns arrays as `result_shape_dtypes` says. It may be called more or
            less often than expected, or not at all if its result is not used.
        result_shape_dtypes: a tree of `ShapeDtypeStruct`s, or of arrays whose shape and dtype are taken.
        *args, **kwargs: trees of arrays, passed to `callback`.
        sharding: the device that the callback belongs to; None for any.
        vmap_method: "sequential", "expand_dims", "broadcast_all" or "legacy_vectorized"; None raises under `vmap`.

    Returns:
        A tree of arrays. It has no derivative: wrap it with `custom_jvp`.

    >>> import numpy as np
    >>> import weft
    >>> import weft.numpy as wnp
    >>> def host_sum(x):
    ...     return np.sum(np.asarray(x))
    >>> weft.jit(lambda x: weft.pure_callback(host_sum, weft.ShapeDtypeStruct((), "float32"), x))(wnp.ones(3))
    Array(3., dtype=float32)
    """
    if vmap_method is not None and vmap_method not in primitives.VMAP_METHODS:
        what = f"vmap_method must be one of {', '.join(map(repr, primitives.VMAP_METHODS))}."
        raise ArgumentError(what, received=repr(vmap_method))
    types, out_tree = result_structure(result_shape_dtypes)
    leaves, in_tree = tree.flatten((args, kwargs))
    check_leaves(callback, "pure_callback", leaves, args, kwargs)
    flat = flat_callback(callback, in_tree, out_tree, "pure_callback")
    results = primitives.pure_callback(*leaves, callback=flat, result_types=types, vmap_method=vmap_method)
    return tree.unflatten(out_tree, results)


def io_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    sharding: Any = None,
    ordered: bool = False,
    **kwargs: Any,
) -> Any:
    """Call a Python function with side effects from inside a program, exactly once each time that it is reached.

    Args:
        callback: a function of NumPy arrays that returns arrays as `result_shape_dtypes` says.
        result_shape_dtypes: a tree of `ShapeDtypeStruct`s; None for no result.
        *args, **kwargs: trees of arrays, passed to `callback`.
        sharding: the device that the callback belongs to; None for any.
        ordered: whether calls happen in the order of the program; such calls raise under `vmap`.

    Returns:
        A tree of arrays.

    >>> import weft
    >>> seen = []
    >>> _ = weft.jit(lambda x: weft.experimental.io_callback(lambda v: seen.append(float(v)), None, x))(2.0)
    >>> seen
    [2.0]
    """
    types, out_tree = result_structure(result_shape_dtypes)
    leaves, in_tree = tree.flatten((args, kwargs))
    check_leaves(callback, "io_callback", leaves, args, kwargs)
    flat = flat_callback(callback, in_tree, out_tree, "io_callback")
    results = primitives.io_callback(*leaves, callback=flat, result_types=types, ordered=ordered)
    return tree.unflatten(out_tree, results)


def debug_callback(
    callback: Callable[..., Any], *args: Any, ordered: bool = False, partitioned: bool = False, **kwargs: Any
) -> None:
    """Call a Python function for debugging with the values of arrays, which may be traced; its result is ignored.

    Args:
        callback: a function of arrays; what it returns is ignored.
        *args, **kwargs: trees of arrays, passed to `callback`.
        ordered: whether calls happen in the order of the program.
        partitioned: whether each device calls it with its own part of sharded arrays.

    >>> import weft
    >>> _ = weft.jit(lambda x: weft.debug.callback(lambda v: print("value", v), x))(3)
    value 3
    """
    if not callable(callback):
        raise ArgumentTypeError(
            "The first argument of debug.callback must be a function.", received=type(callback).__name__
        )
    values, in_tree = tree.flatten((args, kwargs))
    values = [v.value if isinstance(v, Ref) else v for v in values]
    dynamic = [is_value(v) for v in values]
    held = [v for v, d in zip(values, dynamic, strict=True) if not d]

    def flat(*arrays: Any) -> list[Any]:
        traced, others = iter(arrays), iter(held)
        a, k = tree.unflatten(in_tree, [next(traced) if d else next(others) for d in dynamic])
        callback(*a, **k)
        return []

    flat.__name__ = get_name(callback)
    operands = [v for v, d in zip(values, dynamic, strict=True) if d]
    options = {"partitioned": True} if partitioned else {}
    primitives.debug_callback(*operands, callback=flat, result_types=(), ordered=ordered, **options)


class _Check(string.Formatter):
    """Formatter that checks which arguments a format uses."""

    def check_unused_args(self, used_args: Any, args: Sequence[Any], kwargs: Any) -> None:
        unused = [repr(k) for k in (*range(len(args)), *kwargs) if k not in used_args]
        if unused:
            what = "debug.print: an argument does not appear in the format string."
            raise ArgumentError(what, received=f"unused: {', '.join(unused)}", fix="write {} or {name} where it goes")


class _Anything:
    """Stand-in for an argument of a format, with every attribute and item."""

    def __format__(self, spec: str) -> str:
        return ""

    def __getattr__(self, name: str) -> _Anything:
        return self

    def __getitem__(self, item: Any) -> _Anything:
        return self


def debug_print(
    fmt: str,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    _use_logging: bool = False,
    **kwargs: Any,
) -> None:
    """Print values from inside a program, formatted as by `str.format`.

    Args:
        fmt: a format string with braces, as for `str.format`.
        *args, **kwargs: trees of arrays, formatted.
        ordered: whether lines come in the order of the program.
        partitioned: whether each device prints its own part of sharded arrays.
        skip_format_check: whether to accept text that looks like an f-string of traced values.
        _use_logging: whether lines go to the logger `weft.debug` instead of the output.

    >>> import weft
    >>> @weft.jit
    ... def f(x):
    ...     weft.debug.print("x is {}", x)
    ...     return x + 1
    >>> _ = f(1)
    x is 1
    """
    if not isinstance(fmt, str):
        what = "The first argument of debug.print must be a format string."
        raise ArgumentTypeError(what, received=type(fmt).__name__, fix="debug.print('{}', x)")
    if not skip_format_check:
        try:
            _Check().format(fmt, *(_Anything() for _ in args), **dict.fromkeys(kwargs, _Anything()))
        except LookupError as error:  # one line, since KeyError shows its text quoted
            what = f"debug.print: the format string uses `{error.args[0]}`, which must be among the arguments"
            raise type(error)(f"{what} (at {user_line()})") from None

    def show(*values: Any, **named: Any) -> None:
        with np.printoptions(precision=8):
            text = fmt.format(*map(_shown, values), **{k: _shown(v) for k, v in named.items()})
        if _use_logging:
            logger.info("%s", text)
        else:
            sys.stdout.write(text + "\n")

    debug_callback(show, *args, ordered=ordered, partitioned=partitioned, **kwargs)


def debug_log(
    fmt: str,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    _use_logging: bool = True,
    **kwargs: Any,
) -> None:
    """Log values from inside a program, formatted as by `str.format`, with the logger "weft" as information."""
    debug_print(
        fmt,
        *args,
        ordered=ordered,
        partitioned=partitioned,
        skip_format_check=skip_format_check,
        _use_logging=_use_logging,
        **kwargs,
    )


def _shown(value: Any) -> Any:
    return value[()] if isinstance(value, np.ndarray) and not value.shape else value


def breakpoint(
    *,
    backend: str | None = None,
    filter_frames: bool = True,
    num_frames: int | None = None,
    ordered: bool = False,
    token: Any = None,
    **kwargs: Any,
) -> None:
    """Open a console when the program reaches this line, with the local variables (arrays as values).

    `c` or the end of input continues.
    """
    frame = sys._getframe(1)
    while filter_frames and frame.f_back is not None and is_internal(frame.f_code.co_filename):
        frame = frame.f_back
    line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    local = {k: v for k, v in frame.f_locals.items() if not k.startswith("__")}
    traced = {k: v for k, v in local.items() if is_value(v)}
    other = {k: v for k, v in local.items() if k not in traced}

    def stop(values: dict[str, Any]) -> None:
        console = _Console({**other, **values})
        banner = f"Stopped at {line}. Variables: {', '.join([*values, *other])}. Type c to go on."
        with contextlib.suppress(SystemExit):
            console.interact(banner=banner, exitmsg="")

    debug_callback(stop, traced, ordered=ordered)


class _Console(code.InteractiveConsole):
    """Console that `c` (continue) or `q` leaves."""

    def raw_input(self, prompt: str = "") -> str:
        line = super().raw_input("(weft) ")
        if line.strip() in ("c", "cont", "continue", "q", "quit"):
            raise EOFError
        return line


def effects_barrier() -> None:
    """Wait for all programs that run asynchronously.

    Programs with effects do not: their effects have happened when the call returns.

    >>> import weft
    >>> weft.effects_barrier()
    """
    for wait in barriers:
        wait()

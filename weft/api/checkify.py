"""`checkify`: functions that return their errors. `weft.experimental.checkify` is the public module."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from weft.api.flat import OutTree, check_callable, flat_function, get_name, wraps
from weft.base import dtypes, tree
from weft.base.errors import ArgumentTypeError, FailedCheckError
from weft.base.settings import checks, strict_indices
from weft.base.source import user_line
from weft.base.tracebacks import boundary
from weft.ir.context import with_aval
from weft.ir.types import ArrayType, get_aval, is_value
from weft.primitives.control.check import check_failures
from weft.primitives.control.failures import CHECK_FAILED, DIVISION, INDEX, NAN, NOTHING, Sites
from weft.primitives.elementwise.compare import eq, ne
from weft.trace.stage import stage
from weft.trace.tracer import Tracer
from weft.transforms.functionalize import Run, select_first

JaxRuntimeError = FailedCheckError


class ErrorCategory(str):
    """Kind of error. Sets of them, such as `user_checks | nan_checks`, select the errors that `checkify` returns."""

    __slots__ = ()


user_checks = frozenset({ErrorCategory(CHECK_FAILED)})
"""Conditions that are passed to `check`."""
nan_checks = frozenset({ErrorCategory(NAN)})
"""Operations that return nan for operands that are not nan."""
div_checks = frozenset({ErrorCategory(DIVISION)})
"""Divisions by zero, of integers and of floats."""
index_checks = frozenset({ErrorCategory(INDEX)})
"""Indices out of bounds of operations without a mode."""
float_checks = nan_checks | div_checks
automatic_checks = float_checks | index_checks
all_checks = automatic_checks | user_checks


@dataclasses.dataclass(frozen=True)
class Error:
    """Error that may have happened: a tree of arrays, so it can be returned from `jit`, carried by loops and mapped.

    `get` returns its message or None, `throw` raises it.
    """

    _pred: Any  # whether something failed
    _code: Any  # at which site of the metadata, counted from 1
    _metadata: Sites
    _payload: tuple[Any, ...]  # the values that messages show

    def get(self) -> str | None:
        """Return the message of the error, or None if there was none; for an error that `vmap` mapped, a line for each
        index that failed."""
        failures = self._failures()
        if not failures:
            return None
        if np.ndim(self._code) == 0:
            return failures[0][1]
        return "\n".join(f"at mapped index {','.join(map(str, index))}: {text}" for index, text, _ in failures)

    def get_exception(self) -> FailedCheckError | None:
        """Return the error as an exception with the user's line, or None."""
        failures = self._failures()
        return FailedCheckError(self.get(), at=failures[0][2]) if failures else None

    def throw(self) -> None:
        """Raise the error, if there was one; if it is traced, call `check_error`."""
        if any(isinstance(leaf, Tracer) for leaf in (self._code, *self._payload)):
            check_error(self)
            return
        exception = self.get_exception()
        if exception is not None:
            raise exception

    def _failures(self) -> list[tuple[tuple[int, ...], str, str | None]]:
        """Return (index, message, line) for each failed index of a mapped error."""
        if self._code is None:
            return []
        codes, values = np.asarray(self._code), [np.asarray(p) for p in self._payload]
        found = []
        for index in np.argwhere(codes):
            lane = tuple(int(i) for i in index)
            code = int(codes[lane])
            text = self._metadata.message(code, [v[lane] for v in values])
            found.append((lane, text, self._metadata.sites[code - 1].at))
        return found

    def __str__(self) -> str:
        return f"Error({self.get()})"


tree.register_pytree_node(
    Error,
    lambda error: ((error._pred, error._code, error._payload), error._metadata),
    lambda metadata, children: Error(children[0], children[1], metadata, children[2]),
)

init_error = Error(None, None, NOTHING, ())
"""No error."""


def check(pred: Any, msg: str, *fmt_args: Any, debug: bool = False, **fmt_kwargs: Any) -> None:
    """Report an error if a condition does not hold.

    Args:
        pred: a scalar bool, which may be traced.
        msg: the message, a format string.
        fmt_args, fmt_kwargs: trees of arrays that `msg.format` shows.
        debug: whether the check is only for functions that are transformed by `checkify`, and does nothing elsewhere.

    Under `checkify` (with `user_checks`) the error becomes a value. Elsewhere it is raised, by compiled code too.

        >>> import weft
        >>> from weft.experimental import checkify
        >>> def halved(n):
        ...     checkify.check(n % 2 == 0, "{} is odd", n)
        ...     return n // 2
        >>> weft.jit(halved)(7)
        Traceback (most recent call last):
        ...
        weft.errors.FailedCheckError: 7 is odd (`check` failed)...
    """
    if not isinstance(msg, str):
        raise ArgumentTypeError("check: msg must be a string.", received=repr(msg), fix="check(pred, 'what failed')")
    aval: Any = get_aval(pred) if is_value(pred) else None
    if not isinstance(aval, ArrayType) or aval.shape or aval.dtype != np.bool_:
        raise ArgumentTypeError(
            "check takes a scalar pred as argument, which must be a bool.",
            received=repr(pred) if aval is None else aval.short(),
            fix="check(wnp.all(x > 0), ...)",
        )
    leaves, form = tree.flatten((fmt_args, fmt_kwargs))
    for leaf in leaves:
        if not is_value(leaf) or not isinstance(get_aval(leaf), ArrayType) or dtypes.kind(get_aval(leaf).dtype) == "V":  # type: ignore[attr-defined]
            raise ArgumentTypeError(
                "Formatting arguments to checkify.check need to be PyTrees of arrays.",
                received=f"{leaf!r} of type {type(leaf).__name__}",
                fix="put what is not an array into the message itself",
            )
    sites = Sites.of(CHECK_FAILED, msg, form, leaves, user_line())
    check_failures(pred, np.array(1, np.int32), leaves, sites, debug)


def debug_check(pred: Any, msg: str, *fmt_args: Any, **fmt_kwargs: Any) -> None:
    """Report an error like `check`, but only in functions that are transformed by `checkify`."""
    check(pred, msg, *fmt_args, debug=True, **fmt_kwargs)


def check_error(error: Error) -> None:
    """Report an error that `checkify` returned, as `check` does: an outer `checkify` returns it, and it is raised
    elsewhere."""
    if not isinstance(error, Error):
        fix = "error, result = checkify.checkify(f)(x); checkify.check_error(error)"
        raise ArgumentTypeError(
            "check_error: the argument must be an error that checkify returned.", received=repr(error), fix=fix
        )
    if error._code is None:
        return
    failed = ne(error._code, np.array(0, np.int32))
    code, *values = [select_first(failed, v) for v in (error._code, *error._payload)]
    check_failures(eq(code, np.array(0, np.int32)), code, values, error._metadata)


def checkify(f: Callable[..., Any], errors: Iterable[ErrorCategory] = user_checks) -> Callable[..., Any]:
    """Transform a function to return an `Error` beside its result, instead of raising the errors of its checks.

    Args:
        f: a function of trees of arrays.
        errors: which errors are returned, a set of categories: `user_checks` (the default), `nan_checks`, `div_checks`,
            `index_checks`, unions of them, or `all_checks`. Others are not checked.

    Returns:
        A function of the same arguments that returns `(error, result)`. It can be transformed by `jit`, `grad`, `vmap`
        and so on, and `f` may use all of them. If several checks fail, the error is the first one.

        >>> import weft.numpy as wnp
        >>> from weft.experimental import checkify
        >>> error, y = checkify.checkify(lambda x: wnp.log(x) + 1, errors=checkify.float_checks)(-1.0)
        >>> error.get()
        'nan generated by primitive: log.'
    """
    check_callable(f, "checkify")
    categories = frozenset(errors)
    for category in categories:
        if not isinstance(category, ErrorCategory):
            raise ArgumentTypeError(
                "checkify: errors must be a set of error categories.",
                received=repr(category),
                fix="errors=checkify.user_checks | checkify.nan_checks",
            )
    kinds = frozenset(map(str, categories))

    @boundary
    @wraps(f)
    def function(*args: Any, **kwargs: Any) -> tuple[Error, Any]:
        # Arguments are closed over, so that concrete sizes and static arguments of `jit` stay concrete in f.
        # Floats are no sizes, and as arrays they are checked.
        args, kwargs = tree.map(lambda leaf: with_aval(leaf) if type(leaf) is float else leaf, (args, kwargs))
        out = OutTree()
        flat = flat_function(lambda: f(*args, **kwargs), tree.structure(((), {})), out)
        # Functions that index and divide bind checks if the setting is on.
        binding = checks("all") if kinds & {DIVISION, INDEX} else contextlib.nullcontext()
        with binding, strict_indices(False):  # concrete indices are reported, or not checked, like traced ones
            jaxpr, _ = stage(flat, [], where=get_name(f), name=get_name(f))
        run = Run(kinds)
        results = run.equations(jaxpr, [])
        error = init_error
        if run.sites.sites:
            code, *values = run.outputs()
            error = Error(ne(code, np.array(0, np.int32)), code, run.sites, tuple(values))
        return error, tree.unflatten(out.treedef, results)

    return function

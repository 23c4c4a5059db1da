"""`Ref`: a mutable array. It is discharged while tracing: jaxprs have values only (docs/design/refs.md)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from weft.base import errors
from weft.base.source import Location, user_line, user_location
from weft.ir.context import Trace, context, with_aval
from weft.ir.jaxpr import Jaxpr
from weft.ir.types import RefType, get_aval
from weft.trace.stage import Cell, StagingTrace
from weft.trace.tracer import Tracer


class Ref:
    """Mutable array: `ref[i]` reads, `ref[i] = x` writes, `ref[...]` is all of it. `weft.new_ref(x)` makes one."""

    __slots__ = ("__weakref__", "_closed", "_home", "_source", "_value", "escaped", "outer", "written")

    # Indexing, which is written with `weft.numpy`: `weft/ref.py` sets both.
    read: Callable[[Ref, Any], Any]
    write: Callable[[Ref, Any, Any], None]

    def __init__(self, aval: Any, refs: Any):
        """Create a Ref of the value `refs` with type `aval` (None: the value's own type)."""
        self._value = with_aval(refs)
        wanted = getattr(aval, "inner_aval", aval)
        if wanted is not None and not wanted.matches(get_aval(self._value)):
            what = "The initial value of a Ref must have its type."
            raise errors.ArgumentTypeError(what, received=f"{get_aval(self._value).short()} for {wanted.short()}")
        self._home = context.trace
        self._source: Location | None = user_location()
        self._closed = ""  # how it ended, if it has
        self.written = False
        # For a Ref in place of an argument of `jit`: a derivative rule refers to it, and is called after the function
        # has been traced; from then on it stands for the argument.
        self.escaped = False
        self.outer: Ref | None = None

    @classmethod
    def of(cls, value: Any) -> Ref:
        """Create a Ref with an initial value."""
        return cls(None, value)

    # -- its type ----------------------------------------------------------------------------------------------------

    @property
    def inner_aval(self) -> Any:
        """Type of the array."""
        return get_aval(self._value)

    @property
    def shape(self) -> tuple[Any, ...]:
        result: tuple[Any, ...] = self.inner_aval.shape
        return result

    @property
    def dtype(self) -> Any:
        return self.inner_aval.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        result: int = self.inner_aval.size
        return result

    @property
    def weak_type(self) -> bool:
        result: bool = self.inner_aval.weak_type
        return result

    @property
    def sharding(self) -> Any:
        """Sharding of the value."""
        return self._value.sharding

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a Ref without dimensions")
        result: int = self.shape[0]
        return result

    def __repr__(self) -> str:
        if self._closed:
            return f"Ref({self._closed})"
        return repr(self._value).replace("Array(", "Ref(", 1) if not isinstance(self._value, Tracer) else self.short()

    def short(self) -> str:
        return RefType(self.inner_aval).short()

    # -- its elements ------------------------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Any:
        return Ref.read(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        Ref.write(self, index, value)

    def __iter__(self) -> Any:
        return iter(self[...])

    def __bool__(self) -> bool:
        raise errors.ArgumentTypeError(
            "A Ref has no truth value.", received=self.short(), fix="ref[...], whose elements have one"
        )

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return self[...].__array__(*args, **kwargs)

    # -- its value ---------------------------------------------------------------------------------------------------

    @property
    def value(self) -> Any:
        """Current value of the array, as the function that is being traced sees it."""
        cell, _ = self._locate()
        return self._own()._value if cell is None else cell.value

    def _own(self) -> Ref:
        """Return the Ref that holds the value: after the function it was passed to has been traced, the outer one."""
        return self if self.outer is None or not getattr(self._home, "finished", False) else self.outer._own()

    def replace(self, value: Any) -> None:
        """Replace the array by another one of the same type."""
        cell, above = self._locate()
        self._check_stays(value, above)
        if cell is None:
            own = self._own()
            own._value, own.written = value, True
        else:
            cell.value, cell.written = value, True

    def taken(self) -> Any:
        """Return the array, outside of all traces, for a program that overwrites it: a copy if it is referenced
        elsewhere."""
        alone = sys.getrefcount(self._value) <= 2  # its own, and the argument of this call
        return self._value if alone else self._value.copy()

    def close(self, how: str) -> Any:
        """Invalidate the Ref and return its array."""
        value = self.value
        self._closed = how
        return value

    @property
    def is_outside(self) -> bool:
        """Whether it was created outside of all traced functions."""
        return _around(self._home) is None

    def _locate(self) -> tuple[Cell | None, list[Trace]]:
        """Return where its value is for the active trace: the cell of the innermost staging trace between here and its
        home, or None if the Ref itself holds it; and the traces from here to there."""
        if self._closed:
            what = f"This Ref has been {self._closed}, so it has no value any more."
            raise errors.ArgumentError(what, received=self.short(), at=user_line())
        if self.outer is not None and getattr(self._home, "finished", False):
            return self.outer._locate()
        above: list[Trace] = []
        trace: Trace | None = context.trace
        while trace is not self._home:
            if trace is None:
                raise errors.UnexpectedTracerError(
                    "A Ref is used outside of the traced function in which it was created.",
                    received=f"{self.short()}, created at {self._source.describe() if self._source else 'a line'}",
                    fix="return ref[...] from the function, or create the Ref outside and pass it as an argument",
                    at=user_line(),
                )
            if isinstance(trace, StagingTrace):
                self._check_reachable(trace)
                return trace.cell(self, self.inner_aval), above
            above.append(trace)
            trace = _around(trace)
        return None, above

    def _check_reachable(self, trace: Trace) -> None:
        """Raise if `trace` does not lie inside the trace that created the Ref."""
        around: Trace | None = trace
        while around is not None and around is not self._home:
            around = _around(around)
        if around is None:
            raise errors.UnexpectedTracerError(
                "A Ref is used outside of the traced function in which it was created.",
                received=self.short(),
                fix="create it outside, and pass it as an argument",
                at=user_line(),
            )

    def _check_stays(self, value: Any, above: Sequence[Trace]) -> None:
        """Raise if `value` belongs to a transformation inside of the function that owns the Ref: it must not leave
        it."""
        for trace in above:
            if trace.maps:
                raise errors.ArgumentError(
                    "A Ref from outside is written inside of vmap, where each element would write it.",
                    received=self.short(),
                    fix="pass the Ref as a mapped argument of the function, or create it inside",
                    at=user_line(),
                )
        inside = {id(t) for trace in above for t in (trace, getattr(trace, "staging", None))}
        if isinstance(value, Tracer) and id(value._trace) in inside:
            raise errors.ArgumentError(
                "A value that is being differentiated is written to a Ref from outside, where it would lose its "
                "derivative.",
                received=f"{value.aval.short()}, {value.origin()}",
                fix=(
                    "create the Ref inside of the differentiated function",
                    "lax.stop_gradient(x), if the derivative is not wanted",
                ),
                at=user_line(),
            )


def _around(trace: Trace) -> Trace | None:
    """Return the trace around one; None for the trace that runs operations."""
    return getattr(trace, "parent", None) or getattr(trace, "outer", None)


class Touched(NamedTuple):
    """Ref from outside that a staged function reads, or writes."""

    ref: Ref
    written: bool


NOTHING: list[Touched] = []


def get_touched_refs(jaxpr: Jaxpr) -> list[Touched]:
    """Return the mutable arrays whose values are the last arguments of a jaxpr that a rule has staged; its last results
    are the new values of the written ones."""
    result: list[Touched] = jaxpr._cache.get("touched", NOTHING)
    return result


def ref_values(touched: Sequence[Touched]) -> list[Any]:
    """Return the values of references, as arguments of a jaxpr."""
    return [t.ref.value for t in touched]


def write_back(touched: Sequence[Touched], values: Sequence[Any]) -> None:
    """Assign new values to the references that a program has written, in this order."""
    for t, value in zip([t for t in touched if t.written], values, strict=True):
        t.ref.replace(value)


def check_no_refs_twice(leaves: Sequence[Any], name: str, path: Callable[[int], str]) -> None:
    """Raise if two arguments are the same Ref: they would be two names for one array."""
    seen: dict[int, int] = {}
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, Ref):
            if id(leaf) in seen:
                raise errors.ArgumentError(
                    f"only one reference to a mutable array may be passed as an argument to a function: {name} got one "
                    "twice.",
                    received=f"{leaf.short()} at both {path(seen[id(leaf)])} and {path(i)}",
                    fix="pass it once",
                    at=user_line(),
                )
            seen[id(leaf)] = i


def check_not_closed_over(
    leaves: Sequence[Any], touched: Sequence[Touched], name: str, path: Callable[[int], str]
) -> None:
    """Raise if a Ref that is an argument is also closed over."""
    for t in touched:
        for i, leaf in enumerate(leaves):
            if leaf is t.ref:
                raise errors.ArgumentError(
                    f"{name}: a mutable array reference was both closed over and passed as the argument {path(i)}.",
                    received=t.ref.short(),
                    fix="use the argument only",
                    at=user_line(),
                )


def check_no_ref_results(results: Sequence[Any], what: str) -> None:
    """Raise if a traced function returns a Ref: it would be a second name for one array."""
    for value in results:
        if isinstance(value, Ref):
            source = value._source
            at = f", created at {source.describe()}" if source is not None else ""
            raise errors.ArgumentTypeError(
                f"{what} returned a mutable array reference, but mutable array references cannot be returned.",
                received=f"{value.short()}{at}",
                fix="return ref[...], or pass a Ref that the function writes",
                at=user_line(),
            )

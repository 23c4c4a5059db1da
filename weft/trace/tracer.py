"""Tracers: values that stand for arrays while a function is transformed. Python protocols that need a concrete value
raise an error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from weft.base import dtypes, errors
from weft.base.errors import ArgumentError
from weft.base.source import Location, user_line, user_location
from weft.ir.context import Trace
from weft.ir.types import Type
from weft.trace.array import Array

# Statements that need a truth value, by the first word of their line, and what to write instead.
_TRUTHS: dict[str, tuple[str, Sequence[str]]] = {
    "while": (
        "`while`",
        ["lax.while_loop(condition, body, carry)", "lax.fori_loop(0, n, body, carry)   for n iterations"],
    ),
    "assert": (
        "`assert`",
        [
            "assert x.shape == (3,)   of shapes and dtypes, which are known",
            "weft.debug.callback(check, x), whose Python function may raise while the program runs",
            "with weft.checks(True): to have indices, divisors and nan checked",
        ],
    ),
    "if": ("`if`", ["where(c, a, b)   per element", "lax.cond(c, f, g, x)   per call"]),
    "and": ("`and`, `or` or `not`", ["a & b, a | b, ~a   which work on arrays", "where(c, a, b)   to choose"]),
    "": ("`if`, `while`, `and` or `bool()`", ["where(c, a, b)   per element", "lax.cond(c, f, g, x)   per call"]),
}


def _explain_truth(line: str) -> tuple[str, Sequence[str]]:
    word = line.partition(" ")[0]
    if word == "elif" or " if " in line:
        word = "if"
    elif word not in _TRUTHS and any(f" {name} " in line for name in ("and", "or", "not")):
        word = "and"
    return _TRUTHS.get(word, _TRUTHS[""])


class Tracer(Array):
    """Value known by its type; `_trace` is the trace it belongs to."""

    __slots__ = ("_trace", "aval")

    def __init__(self, trace: Trace, aval: Type):
        self._trace = trace
        self.aval = aval

    def origin(self) -> str:
        """Describe where the value came from, for error messages."""
        return self._trace.describe()

    def known(self) -> Any:
        """Return the concrete value behind the tracer, or None: forward mode and vmap of constants still know it."""
        return None

    def observe(self) -> Any:
        """Compute the value where all arguments have values (an eager `shard_map`); return None where they do not.

        Only conversions to Python and NumPy values call it, since it runs the program that was recorded so far.
        """
        return None

    def _raise(self, error: type[Exception], what: str, fix: str | Sequence[str], jax: str | None = None) -> NoReturn:
        received = f"{self.aval.short()}, {self.origin()}"
        raise error(what, received=received, fix=fix, at=user_line(), jax=jax)  # type: ignore[call-arg]

    def _number(self) -> Any:
        """Return the value if it is known or can be computed now, else None."""
        value = self.known()
        return self.observe() if value is None else value

    def __bool__(self) -> bool:
        value = self._number()
        if value is not None:
            return bool(value)
        if any(size != 1 for size in self.aval.shape):
            raise ArgumentError(ambiguous(self.aval), fix="use .any() or .all()", jax=ambiguous_in_jax(self.aval))
        location = user_location()
        asked, fixes = _explain_truth("" if location is None else location.text)
        self._raise(
            errors.TracerBoolConversionError,
            f"{asked} needs a known True or False, but the value is traced.",
            [*fixes, "static_argnums or static_argnames, if the value is meant to be known when tracing"],
            f"Attempted boolean conversion of traced array with shape {self.aval.str_short()}. The value is traced.",
        )

    def __int__(self) -> int:
        value = self._number()
        if value is not None:  # an integer has no derivative, so none is lost
            return int(value)
        self._refuse_conversion("int()")

    def __float__(self) -> float:
        value = self.observe()
        return self._refuse_conversion("float()") if value is None else float(value)

    def __complex__(self) -> complex:
        value = self.observe()
        return self._refuse_conversion("complex()") if value is None else complex(value)

    def _refuse_conversion(self, caller: str) -> NoReturn:
        if self.known() is not None:
            self._raise(
                errors.ConcretizationTypeError,
                f"`{caller}` of a value that is being differentiated would lose its derivative.",
                "keep it an array (x.astype(...)), or say that the derivative is not wanted: lax.stop_gradient(x)",
            )
        if self.aval.shape:
            raise errors.ArgumentTypeError(
                f"{caller} needs an array without dimensions.",
                received=f"{self.aval.short()}, {self.origin()}",
                fix="x[0] or x.sum(), as an array",
                at=user_line(),
                jax="Only scalar arrays can be converted to Python scalars.",
            )
        self._raise(
            errors.ConcretizationTypeError,
            "Abstract tracer value encountered where concrete value is expected: "
            f"`{caller}` needs a known number, but the value is traced.",
            "keep it an array (x.astype(...)), or make the argument static with static_argnums or static_argnames",
            f"The problem arose with the `{caller[:-2]}` function. If trying to convert the data type of a value, try "
            f"using `x.astype({caller[:-2]})` or `jnp.array(x, {caller[:-2]})` instead.",
        )

    def __index__(self) -> int:
        value = self._number()
        if value is not None:
            result: int = value.__index__()
            return result
        if self.aval.shape or dtypes.kind(self.aval.dtype) not in "iu":
            raise errors.ArgumentTypeError(
                "Only an integer array without dimensions can be an index.",
                received=f"{self.aval.short()}, {self.origin()}",
                fix="x[i] for one element of an array, .astype(int) for floats",
                at=user_line(),
                jax="Only integer scalar arrays can be converted to a scalar index.",
            )
        self._raise(
            errors.TracerIntegerConversionError,
            "The __index__() method was called on traced array: a Python integer is needed here (an index of a list, a "
            "shape, a range), but the value is traced.",
            "make the argument static (static_argnums, static_argnames); to index, use x[i] with a Weft array x",
        )

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        value = self.observe()
        if value is not None:
            return value.__array__(*args, **kwargs)
        self._raise(
            errors.TracerArrayConversionError,
            "The numpy.ndarray conversion method __array__() was called on traced array: it cannot become a NumPy "
            "array, since it has no numbers yet.",
            "use the function of the same name in weft.numpy, or pure_callback to call NumPy code",
        )

    def tolist(self) -> Any:
        value = self.observe()
        if value is not None:
            return value.tolist()
        self._raise(
            errors.ConcretizationTypeError,
            "Abstract tracer value encountered where concrete value is expected: `.tolist()` needs known numbers, but "
            "the value is traced.",
            "keep it an array, or move the call out of the traced function",
        )

    def item(self, *args: Any) -> Any:
        value = self.observe()
        if value is not None:
            return value.item(*args)
        self._raise(
            errors.ConcretizationTypeError,
            "Abstract tracer value encountered where concrete value is expected: `.item()` needs a known number, but "
            "the value is traced.",
            "keep it an array, or move the call out of the traced function",
        )

    # Sizes print differently for user code: `as_seen` inspects the caller of these two methods, at a fixed depth.
    def __repr__(self) -> str:
        return self._text(self.aval.as_seen(), 3)

    def __format__(self, spec: str) -> str:
        return self._text(self.aval.as_seen(), 3)

    def _text(self, aval: Any, depth: int) -> str:
        """Return the text of the tracer with `aval` as its type; the caller that prints it is `depth` frames above."""
        return f"{type(self).__name__}({type_text(aval)})"


def type_text(aval: Any) -> str:
    """Return the text of a type in the `repr` of a tracer: `float32[3]`, `~float32[]` if it is weak."""
    result: str = ("~" if getattr(aval, "weak_type", False) else "") + aval.str_short()
    return result


def ambiguous(aval: Any) -> str:
    elements = "no elements" if 0 in aval.shape else "more than one element"
    return f"The truth value of an array with {elements} is ambiguous: {aval.short()}."


def ambiguous_in_jax(aval: Any) -> str:
    """Return the sentence of JAX for the truth value of an array that does not have one element."""
    elements = "an empty array" if 0 in aval.shape else "an array with more than one element"
    return f"The truth value of {elements} is ambiguous. Use a.any() or a.all()"


def check_leak(tracer: Tracer, source: Location | None, finished: bool, where: str) -> None:
    """Raise if a value of a finished trace is used."""
    if finished:
        origin = f"; it was made at {source.describe()}" if source is not None else ""
        raise errors.UnexpectedTracerError(
            f"A traced value is used after the function it belongs to ({where}) has returned{origin}.",
            received=tracer.aval.short(),
            fix="return the value from the traced function instead of storing it in a variable outside of it",
            at=user_line(),
            jax=stray_text(tracer),
        )


def stray_text(tracer: Tracer) -> str:
    """Return the sentence of JAX for a tracer that is used outside of the function it belongs to."""
    return (
        "Encountered an unexpected tracer. A function transformed by JAX had a side effect, allowing for a "
        "reference to "
        f"an intermediate value with type {tracer.aval.str_short()} to escape the scope of the transformation; it was "
        "created on line: see above."
    )

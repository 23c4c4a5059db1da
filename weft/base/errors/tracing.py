"""Errors of traced values that are used where Python needs a concrete value, or after their trace has ended."""

from __future__ import annotations

from typing import Any

from weft.base.errors.layout import WeftError


class JAXTypeError(WeftError, TypeError):
    """The base class of the type errors that JAX has too."""

    def __init__(self, message: object = "", context: str = "", **parts: Any) -> None:
        # JAX's programs pass the traced value, and what it was needed for.
        super().__init__(f"{message}: {context}" if context else message, **parts)


class JAXIndexError(WeftError, IndexError):
    """The base class of the index errors that JAX has too."""

    def __init__(self, message: object = "", context: str = "", **parts: Any) -> None:
        # JAX's programs pass the traced value, and what it was needed for.
        super().__init__(f"{message}: {context}" if context else message, **parts)


class ConcretizationTypeError(JAXTypeError):
    """A traced value was used where Python needs a concrete value.

    During tracing, arguments are placeholders for all values of their type, so `float`, `complex` or a parameter such
    as `axis` cannot have a value. Compute with the array itself, or make the argument static; then it is an ordinary
    Python value, and the function is traced again for each new value.

    Wrong::

        import weft
        import weft.numpy as wnp

        @weft.jit
        def normalise(x):
            return x / float(wnp.sum(x))

        normalise(wnp.ones(3))

    Right::

        import weft
        import weft.numpy as wnp

        @weft.jit
        def normalise(x):
            return x / wnp.sum(x)

        normalise(wnp.ones(3))
    """


class TracedShapeError(ConcretizationTypeError):
    """A traced value was used as a size in a shape.

    Sizes are part of the type of an array, so they must be known during tracing. Make the size a static argument, or
    take it from the shape of an array.

    Wrong::

        import weft
        import weft.numpy as wnp

        @weft.jit
        def ones(n):
            return wnp.ones(n)

        ones(3)

    Right::

        import functools
        import weft
        import weft.numpy as wnp

        @functools.partial(weft.jit, static_argnums=0)
        def ones(n):
            return wnp.ones(n)

        ones(3)
    """


class TracerBoolConversionError(ConcretizationTypeError):
    """A traced value was used as a condition: in `if`, `while`, `and`, `or`, `not`, `assert` or `bool`.

    Python must choose a branch during tracing, and the value is not known yet. Select per element with `where` or per
    call with `lax.cond`, loop with `lax.while_loop`, combine conditions with `&`, `|` and `~`; or make the argument
    static if it is meant to select code.

    Wrong::

        import weft

        @weft.jit
        def relu(x):
            if x > 0:
                return x
            return 0.0

        relu(2.0)

    Right::

        import weft
        import weft.numpy as wnp

        @weft.jit
        def relu(x):
            return wnp.where(x > 0, x, 0.0)

        relu(2.0)
    """


class TracerIntegerConversionError(JAXTypeError):
    """A traced value was used as a Python integer: as the index of a list, in `range`, or in `int` or `hex`.

    Python's containers need a concrete integer. Put the values into an array, which can be indexed by a traced value,
    or loop with `lax.fori_loop`; or make the argument static.

    Wrong::

        import weft

        table = [1.0, 10.0, 100.0]

        @weft.jit
        def look_up(i):
            return table[i]

        look_up(1)

    Right::

        import weft
        import weft.numpy as wnp

        table = wnp.array([1.0, 10.0, 100.0])

        @weft.jit
        def look_up(i):
            return table[i]

        look_up(1)
    """


class TracerArrayConversionError(JAXTypeError):
    """A traced value was passed to NumPy, or to other code that needs concrete values.

    Functions of `numpy` compute immediately and need values. Call the function of the same name in `weft.numpy`, or use
    `pure_callback` for code that exists only outside of Weft.

    Wrong::

        import numpy as np
        import weft

        @weft.jit
        def wave(x):
            return np.sin(x)

        wave(1.0)

    Right::

        import weft
        import weft.numpy as wnp

        @weft.jit
        def wave(x):
            return wnp.sin(x)

        wave(1.0)
    """


class NonConcreteBooleanIndexError(JAXIndexError):
    """An array was indexed with a traced mask, so that the size of the result would depend on the values in the mask.

    Sizes must be known during tracing. Keep the shape and replace elements with `where` or `.at[mask].set(value)`, or
    pass a bound: `nonzero(mask, size=n)`.

    Wrong::

        import weft
        import weft.numpy as wnp

        @weft.jit
        def sum_of_positive(x):
            return wnp.sum(x[x > 0])

        sum_of_positive(wnp.arange(-2.0, 3.0))

    Right::

        import weft
        import weft.numpy as wnp

        @weft.jit
        def sum_of_positive(x):
            return wnp.sum(wnp.where(x > 0, x, 0.0))

        sum_of_positive(wnp.arange(-2.0, 3.0))
    """


class UnexpectedTracerError(JAXTypeError):
    """A traced value was used after the traced function had returned.

    It escaped by a side effect: it was appended to a list, or assigned to a global or an attribute. A traced value is
    valid only while its function is traced. Return it instead. With `check_tracer_leaks` enabled, the function from
    which it escapes raises, instead of the line that uses it later.

    Wrong::

        import weft
        import weft.numpy as wnp

        kept = []

        @weft.jit
        def double(x):
            y = 2 * x
            kept.append(y)
            return wnp.sum(y)

        double(wnp.ones(3))
        kept[0] + 1

    Right::

        import weft
        import weft.numpy as wnp

        @weft.jit
        def double(x):
            y = 2 * x
            return wnp.sum(y), y

        total, kept = double(wnp.ones(3))
        kept + 1
    """

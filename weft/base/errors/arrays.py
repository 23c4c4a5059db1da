"""Errors of arguments and arrays: values, types, dtypes, shapes, axes, indices."""

from __future__ import annotations

from weft.base.errors.layout import WeftError

# ----------------------------------------------------------------------------------------------------------- arguments


class ArgumentError(WeftError, ValueError):
    """An argument has a value that the function does not accept.

    Examples are an unknown mode, a negative size, a sequence of the wrong length, or two options that exclude each
    other. The message lists the accepted values and the one received.

    Wrong::

        import weft.numpy as wnp

        wnp.linspace(0.0, 1.0, -3)

    Right::

        import weft.numpy as wnp

        wnp.linspace(0.0, 1.0, 3)
    """


class ArgumentTypeError(WeftError, TypeError):
    """An argument has a type that the function does not accept.

    Examples are a function instead of an array, an array instead of a sequence of arrays, or a float instead of an
    integer. The message says which type is expected.

    Wrong::

        import weft.numpy as wnp

        wnp.lexsort(())

    Right::

        import weft.numpy as wnp

        wnp.lexsort((wnp.array([2, 1]),))
    """


class NotSupportedError(WeftError, NotImplementedError):
    """An option of NumPy or JAX that Weft does not support.

    The message says what to write instead. For example, `out=` is not supported because arrays are immutable.

    Wrong::

        import weft.numpy as wnp

        x = wnp.ones(3)
        wnp.add(x, 1, out=x)

    Right::

        import weft.numpy as wnp

        x = wnp.ones(3)
        x = wnp.add(x, 1)
    """


# Their messages are complete, so they have no pages.
ArgumentError.page = ArgumentTypeError.page = NotSupportedError.page = None

# -------------------------------------------------------------------------------------------------- types, shapes, axes


class TypePromotionError(WeftError, ValueError):
    """Operands have dtypes that are not promoted implicitly.

    Either the setting `numpy_dtype_promotion` is `'strict'`, which requires explicit conversions, or one of the dtypes,
    such as float8 or int4, has no common type with the other. Convert one operand with `astype`.

    Wrong::

        import weft
        import weft.numpy as wnp

        with weft.numpy_dtype_promotion("strict"):
            wnp.ones(2, dtype="float32") + wnp.ones(2, dtype="int32")

    Right::

        import weft
        import weft.numpy as wnp

        with weft.numpy_dtype_promotion("strict"):
            wnp.ones(2, dtype="float32") + wnp.ones(2, dtype="int32").astype("float32")
    """


class DtypeMismatchError(WeftError, TypeError):
    """A function of `weft.lax` received dtypes that it does not accept.

    Functions of `weft.lax` do not convert operands: all must have the same dtype, and the operation must support it.
    Convert with `astype`, or call the function of `weft.numpy`, which promotes.

    Wrong::

        import weft
        import weft.numpy as wnp

        weft.lax.add(wnp.ones(2), wnp.arange(2))

    Right::

        import weft
        import weft.numpy as wnp

        weft.lax.add(wnp.ones(2), wnp.arange(2).astype("float32"))
    """


class ShapeMismatchError(WeftError, TypeError, ValueError):
    """Operands have incompatible shapes.

    Broadcasting aligns shapes from the right; two sizes are compatible if they are equal or one of them is 1. Insert an
    axis with `x[:, None]`, or reshape. (It is a `TypeError`, like the error of `jax.lax`, and a `ValueError`, like that
    of NumPy.)

    Wrong::

        import weft.numpy as wnp

        wnp.ones(3) + wnp.ones(4)

    Right::

        import weft.numpy as wnp

        wnp.ones(3)[:, None] + wnp.ones(4)
    """


class AxisOutOfBoundsError(WeftError, ValueError, IndexError):
    """An axis is out of bounds for the array.

    An array of rank n has the axes 0 to n - 1, or -n to -1 counted from the end. (It is a `ValueError` and an
    `IndexError`, like NumPy's `AxisError`.)

    Wrong::

        import weft.numpy as wnp

        wnp.sum(wnp.ones((2, 3)), axis=2)

    Right::

        import weft.numpy as wnp

        wnp.sum(wnp.ones((2, 3)), axis=1)
    """


class NarrowingOverflowError(WeftError, OverflowError):
    """A number does not fit into the 32-bit type that it is converted to.

    By default 64-bit NumPy values become 32-bit arrays. Converting an integer out of range, or a finite float that
    would become infinite or zero, would change its value, so it is an error. Enable `enable_x64`, or scale the values.

    Wrong::

        import numpy as np
        import weft.numpy as wnp

        wnp.asarray(np.int64(2**40))

    Right::

        import numpy as np
        import weft
        import weft.numpy as wnp

        with weft.enable_x64(True):
            wnp.asarray(np.int64(2**40))
    """


class InvalidInputTypeError(WeftError, TypeError):
    """A value that is not an array or a number was passed to an array operation.

    The leaves of arguments and results must be arrays, NumPy arrays or Python numbers. Make strings and other objects
    that select code static arguments; register a class that holds arrays as a pytree node.

    Wrong::

        import weft

        @weft.jit
        def apply(x, name):
            return x + 1 if name == "up" else x - 1

        apply(2.0, "up")

    Right::

        import functools
        import weft

        @functools.partial(weft.jit, static_argnums=1)
        def apply(x, name):
            return x + 1 if name == "up" else x - 1

        apply(2.0, "up")
    """


class InconclusiveDimensionOperation(WeftError):
    """A comparison of symbolic sizes does not have the same answer for all sizes.

    `n > 4` has no truth value if `n` may be any size. Add a constraint, or write the code so that it does not depend on
    the comparison.

    Wrong::

        from weft.indexing.dimension import symbol

        n = symbol("n")
        bool(n > 4)

    Right::

        from weft.indexing.dimension import symbol

        n = symbol("n", lower=5)
        bool(n > 4)
    """


# ------------------------------------------------------------------------------------------------------------- indexing


class InvalidIndexError(WeftError, IndexError):
    """An index is not valid for this array.

    Examples are more indices than the array has axes, two ellipses, or a mask whose shape differs from the axes it
    selects from.

    Wrong::

        import weft.numpy as wnp

        wnp.ones((2, 3))[0, 0, 0]

    Right::

        import weft.numpy as wnp

        wnp.ones((2, 3))[0, 0]
    """


class OutOfBoundsIndexError(WeftError, IndexError):
    """An index is out of bounds, known during tracing or detected by `checks` at run time.

    An index that is only known at run time is handled according to the mode: by default it is clamped in reads and
    dropped in writes. An index that is known to be out of bounds is an error, unless a mode is passed. With
    `weft.checks("all")` compiled programs detect the others too, and the message has the line, the index, the iteration
    of the enclosing loops and the element of the batch.

    Wrong::

        import weft.numpy as wnp

        wnp.arange(3)[5]

    Right::

        import weft.numpy as wnp

        wnp.arange(3).at[5].get(mode="fill", fill_value=0)
    """


class ImmutableArrayError(WeftError, TypeError):
    """Assignment to an element of an array, or an in-place change of an array.

    Arrays are immutable. `x.at[i].set(v)` returns an array in which the element is replaced; under `jit` this does not
    copy if `x` is not used afterwards.

    Wrong::

        import weft.numpy as wnp

        x = wnp.zeros(3)
        x[0] = 1.0

    Right::

        import weft.numpy as wnp

        x = wnp.zeros(3)
        x = x.at[0].set(1.0)
    """

"""Arguments and arrays that do not fit: values, types, dtypes, shapes, axes, indices."""

from __future__ import annotations

from weft.base.errors.layout import WeftError

# ----------------------------------------------------------------------------------------------------------- arguments


class ArgumentError(WeftError, ValueError):
    """An argument has a value that the function cannot work with.

    The message says which values it takes and what it got: an unknown mode, a negative size, a sequence of the wrong
    length, two options that exclude each other.

    Wrong::

        import weft.numpy as wnp

        wnp.linspace(0.0, 1.0, -3)

    Right::

        import weft.numpy as wnp

        wnp.linspace(0.0, 1.0, 3)
    """


class ArgumentTypeError(WeftError, TypeError):
    """An argument is of a type that the function does not take.

    A function where an array belongs, an array where a sequence of arrays belongs, a float where an integer is
    needed. The message says what belongs there.

    Wrong::

        import weft.numpy as wnp

        wnp.lexsort(())

    Right::

        import weft.numpy as wnp

        wnp.lexsort((wnp.array([2, 1]),))
    """


class NotSupportedError(WeftError, NotImplementedError):
    """An option that exists elsewhere, in NumPy or JAX, and that Weft does not have.

    The message says what to write instead. `out=` is such an option: arrays are immutable, so that nothing can be
    written into one.

    Wrong::

        import weft.numpy as wnp

        x = wnp.ones(3)
        wnp.add(x, 1, out=x)

    Right::

        import weft.numpy as wnp

        x = wnp.ones(3)
        x = wnp.add(x, 1)
    """


# Their messages say all there is to say.
ArgumentError.page = ArgumentTypeError.page = NotSupportedError.page = None

# -------------------------------------------------------------------------------------------------- types, shapes, axes


class TypePromotionError(WeftError, ValueError):
    """Operands have dtypes that do not combine by themselves.

    Either the setting `numpy_dtype_promotion` is `'strict'`, which wants conversions spelled out, or one of the
    dtypes, such as a float8 or an int4, has no common type with the other. Convert one operand with `astype`.

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
    """A function of `weft.lax` got dtypes that it does not take.

    These functions convert nothing by themselves: operands have one dtype, and one that the operation is defined for.
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
    """Operands have shapes that do not fit the operation.

    Broadcasting lines shapes up from the right, and two sizes fit if they are equal or one of them is 1. Insert an
    axis with `x[:, None]`, or reshape. (A `TypeError`, as where a type rule of `weft.lax` refuses, and a `ValueError`,
    as where NumPy does.)

    Wrong::

        import weft.numpy as wnp

        wnp.ones(3) + wnp.ones(4)

    Right::

        import weft.numpy as wnp

        wnp.ones(3)[:, None] + wnp.ones(4)
    """


class AxisOutOfBoundsError(WeftError, ValueError, IndexError):
    """An axis was named that the array does not have.

    An array of rank n has the axes 0 to n - 1, or counted from the end -n to -1. (A `ValueError` and an `IndexError`,
    as NumPy's own.)

    Wrong::

        import weft.numpy as wnp

        wnp.sum(wnp.ones((2, 3)), axis=2)

    Right::

        import weft.numpy as wnp

        wnp.sum(wnp.ones((2, 3)), axis=1)
    """


class NarrowingOverflowError(WeftError, OverflowError):
    """A number does not fit into the 32-bit type that it is converted to.

    By default 64-bit NumPy values become 32-bit arrays. An integer outside of the range, or a finite float that would
    become infinite or zero, would be another number afterwards, so it is refused. Turn on `enable_x64`, or scale.

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
    """A value that is no array, and no number, reached a place where arrays are computed with.

    The leaves of arguments and results must be arrays, NumPy arrays or Python numbers. Strings and other objects that
    select code are static arguments; a class of your own that holds arrays is registered as a tree node.

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
    """A comparison of symbolic sizes whose answer is not the same for all sizes they stand for.

    `n > 4` has no truth value when `n` may be any size. State what is known as a constraint, or write the code so that
    it need not ask.

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
    """Something that is no index of this array.

    More indices than the array has axes, two ellipses, a mask of another shape than the axes it selects from.

    Wrong::

        import weft.numpy as wnp

        wnp.ones((2, 3))[0, 0, 0]

    Right::

        import weft.numpy as wnp

        wnp.ones((2, 3))[0, 0]
    """


class OutOfBoundsIndexError(WeftError, IndexError):
    """An index outside of the array, known before the program runs or found by `checks` while it runs.

    What happens to an index that only the running program knows is a matter of the mode: by default it is clamped for
    reading and dropped for writing. An index that is visibly wrong is a mistake, unless a mode is given. With
    `weft.checks("all")` compiled programs find the others too, and the message names the line, the index, the iteration
    of the loops around it and the element of the batch.

    Wrong::

        import weft.numpy as wnp

        wnp.arange(3)[5]

    Right::

        import weft.numpy as wnp

        wnp.arange(3).at[5].get(mode="fill", fill_value=0)
    """


class ImmutableArrayError(WeftError, TypeError):
    """An element of an array was assigned to, or an array was changed in place.

    Arrays do not change: transformations rely on it. `x.at[i].set(v)` gives the array in which the element is
    replaced, and under `jit` it costs no copy where `x` is not needed any more.

    Wrong::

        import weft.numpy as wnp

        x = wnp.zeros(3)
        x[0] = 1.0

    Right::

        import weft.numpy as wnp

        x = wnp.zeros(3)
        x = x.at[0].set(1.0)
    """

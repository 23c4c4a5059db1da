"""Errors of transformations and control flow: `grad`, `vmap`, `cond`, `scan` and the like."""

from __future__ import annotations

from weft.base.errors.layout import WeftError

# ------------------------------------------------------------------------------------------------------ differentiation


class NonScalarGradientError(WeftError, TypeError):
    """`grad` of a function that does not return a scalar.

    Reduce the result with a sum or mean, or compute all derivatives of an array with `jacrev` or `jacfwd`. With
    `has_aux=True` a function may return other values in addition to the scalar.

    Wrong::

        import weft
        import weft.numpy as wnp

        weft.grad(wnp.sin)(wnp.ones(3))

    Right::

        import weft
        import weft.numpy as wnp

        weft.grad(lambda x: wnp.sum(wnp.sin(x)))(wnp.ones(3))
    """


class IntegerInputGradientError(WeftError, TypeError):
    """`grad` with respect to an integer or boolean.

    Derivatives are defined only for floats and complex numbers. Pass a float; choose the arguments to differentiate
    with `argnums`; or pass `allow_int=True` to get a gradient of the empty dtype `float0`.

    Wrong::

        import weft

        weft.grad(lambda x: x**2)(3)

    Right::

        import weft

        weft.grad(lambda x: x**2)(3.0)
    """


class TangentMismatchError(WeftError, TypeError, ValueError):
    """A tangent or cotangent has another tree structure, shape or dtype than its value.

    The tangents passed to `jvp` must match the arguments, and the cotangents passed to the function that `vjp` returns
    must match the results.

    Wrong::

        import weft
        import weft.numpy as wnp

        weft.jvp(wnp.sin, (wnp.ones(3),), (wnp.ones(4),))

    Right::

        import weft
        import weft.numpy as wnp

        weft.jvp(wnp.sin, (wnp.ones(3),), (wnp.ones(3),))
    """


class CustomRuleError(WeftError, TypeError, ValueError):
    """A rule of `custom_jvp` or `custom_vjp` is missing, or returns the wrong structure.

    A jvp rule returns the result and its tangent. A backward rule returns a tuple with one cotangent for each
    differentiated argument, with the structure of the argument, or None for zero.

    Wrong::

        import weft
        import weft.numpy as wnp

        @weft.custom_vjp
        def product(x, y):
            return x * y

        product.defvjp(lambda x, y: (x * y, (x, y)), lambda saved, ct: ct * saved[1])
        weft.grad(product)(2.0, 3.0)

    Right::

        import weft
        import weft.numpy as wnp

        @weft.custom_vjp
        def product(x, y):
            return x * y

        product.defvjp(lambda x, y: (x * y, (x, y)), lambda saved, ct: (ct * saved[1], ct * saved[0]))
        weft.grad(product)(2.0, 3.0)
    """


class MissingRuleError(WeftError, NotImplementedError):
    """An operation has no rule for a transformation.

    The message has the reason. Most often the operation is a callback: Weft cannot differentiate a Python function, so
    define its derivative with `custom_jvp` or `custom_vjp`.

    Wrong::

        import numpy as np
        import weft
        import weft.numpy as wnp

        def wave(x):
            return weft.pure_callback(np.sin, weft.ShapeDtypeStruct((), wnp.float32), x)

        weft.grad(wave)(1.0)

    Right::

        import numpy as np
        import weft
        import weft.numpy as wnp

        @weft.custom_jvp
        def wave(x):
            return weft.pure_callback(np.sin, weft.ShapeDtypeStruct((), wnp.float32), x)

        wave.defjvps(lambda tangent, result, x: tangent * wnp.cos(x))
        weft.grad(wave)(1.0)
    """


# ----------------------------------------------------------------------------------------------- control flow and trees


class BranchMismatchError(WeftError, TypeError):
    """The branches of `cond` or `switch` return different tree structures, shapes or dtypes.

    The branch is selected at run time, but the type of the result must be known during tracing. The message has the
    leaf that differs.

    Wrong::

        import weft

        weft.lax.cond(True, lambda x: x, lambda x: (x, x), 1.0)

    Right::

        import weft

        weft.lax.cond(True, lambda x: (x, 0.0), lambda x: (x, x), 1.0)
    """


class CarryMismatchError(WeftError, TypeError):
    """The body of a loop returns a carry of another tree structure, shape or dtype than it received.

    Each iteration starts with the carry that the previous one returned, so the types must be equal. The message has the
    leaf that differs. Often the initial value has the wrong dtype.

    Wrong::

        import weft
        import weft.numpy as wnp

        def add(total, x):
            return total + x, total

        weft.lax.scan(add, wnp.int32(0), wnp.ones(3))

    Right::

        import weft
        import weft.numpy as wnp

        def add(total, x):
            return total + x, total

        weft.lax.scan(add, wnp.float32(0), wnp.ones(3))
    """


class TreeMismatchError(WeftError, ValueError):
    """Pytrees that must have the same structure do not.

    The message has the first path at which they differ. Common causes are a missing key, a tuple in one tree and a list
    in the other, or None (a tree without leaves) where an array is expected.

    Wrong::

        import operator
        import weft

        weft.tree.map(operator.add, {"weight": 1, "bias": 2}, {"weight": 3})

    Right::

        import operator
        import weft

        weft.tree.map(operator.add, {"weight": 1, "bias": 2}, {"weight": 3, "bias": 4})
    """


# ------------------------------------------------------------------------------------------------------- vmap and names


class AxisSpecError(WeftError, ValueError, TypeError):
    """`in_axes`, `out_axes` or `axis_size` of `vmap` does not match the arguments or results.

    The mapped axes must exist and have the same size. `None` means that an argument is not mapped; a tree of axes must
    be a prefix of the tree of the argument.

    Wrong::

        import weft
        import weft.numpy as wnp

        weft.vmap(lambda x, factor: x * factor)(wnp.ones(3), 2.0)

    Right::

        import weft
        import weft.numpy as wnp

        weft.vmap(lambda x, factor: x * factor, in_axes=(0, None))(wnp.ones(3), 2.0)
    """


class UnboundAxisError(WeftError, NameError):
    """A collective such as `psum` names an axis that no enclosing `vmap` or `shard_map` binds.

    Pass the name as `axis_name` where the axis is mapped.

    Wrong::

        import weft
        import weft.numpy as wnp

        weft.vmap(lambda x: x / weft.lax.psum(x, "batch"))(wnp.ones(3))

    Right::

        import weft
        import weft.numpy as wnp

        weft.vmap(lambda x: x / weft.lax.psum(x, "batch"), axis_name="batch")(wnp.ones(3))
    """


class OrderedEffectError(WeftError, ValueError):
    """An ordered effect was used where no order is defined, such as under `vmap`.

    The lanes of a `vmap` run together and have no order. Remove `ordered=True`, or loop with `lax.scan` or `lax.map`,
    which run in order.

    Wrong::

        import weft
        import weft.numpy as wnp

        written = []
        weft.vmap(lambda x: weft.io_callback(written.append, None, x, ordered=True))(wnp.ones(3))

    Right::

        import weft
        import weft.numpy as wnp

        written = []
        weft.lax.map(lambda x: weft.io_callback(written.append, None, x, ordered=True), wnp.ones(3))
    """

"""What `grad`, `vmap`, `cond`, `scan` and the like cannot do with the functions they are given."""

from __future__ import annotations

from weft.base.errors.layout import WeftError

# ------------------------------------------------------------------------------------------------------ differentiation


class NonScalarGradientError(WeftError, TypeError):
    """`grad` was asked for the gradient of a function that does not return one number.

    A gradient is the derivative of one number. Reduce the result with a sum or mean; `jacrev` and `jacfwd` give all
    derivatives of an array; with `has_aux=True` a function may return other values beside the number.

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
    """`grad` was asked to differentiate with respect to an integer or boolean.

    A small change of an integer is no integer, so there is no derivative. Pass a float; choose the arguments to
    differentiate with `argnums`; or say `allow_int=True` to get a gradient of the empty dtype `float0` for it.

    Wrong::

        import weft

        weft.grad(lambda x: x**2)(3)

    Right::

        import weft

        weft.grad(lambda x: x**2)(3.0)
    """


class TangentMismatchError(WeftError, TypeError, ValueError):
    """A tangent or cotangent has another tree, shape or dtype than the value it belongs to.

    The tangents given to `jvp` look like the arguments, the cotangents given to the function of `vjp` look like the
    results.

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
    """A rule given to `custom_jvp` or `custom_vjp` is missing, or returns something of the wrong structure.

    A jvp rule returns the result and its tangent; a backward rule returns a tuple with one cotangent for each
    argument that is differentiated, of the argument's structure, or None for zero.

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
    """A transformation met an operation that has no rule for it.

    The message gives the reason. The usual one is a callback: Weft cannot see into the Python function, so its
    derivative must be given with `custom_jvp` or `custom_vjp`.

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
    """The branches of `cond` or `switch` return different trees, shapes or dtypes.

    Which branch runs is known only when the program runs, but the type of the result must be known before. The
    message names the leaf that differs.

    Wrong::

        import weft

        weft.lax.cond(True, lambda x: x, lambda x: (x, x), 1.0)

    Right::

        import weft

        weft.lax.cond(True, lambda x: (x, 0.0), lambda x: (x, x), 1.0)
    """


class CarryMismatchError(WeftError, TypeError):
    """The body of a loop returns a carry of another tree, shape or dtype than the one it received.

    Each round starts with what the one before returned, so both have one type. The message names the leaf that
    differs. Often the initial value has the wrong dtype.

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
    """Trees that should have the same structure do not.

    The message names the first path at which they differ. Common causes: a missing key, a tuple in one place and a
    list in the other, None (which is a tree without leaves) where an array is expected.

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
    """`in_axes`, `out_axes` or `axis_size` of `vmap` does not fit the arguments or results.

    The mapped axes must exist and must all have one size. `None` says that an argument is the same for every call; a
    tree of axes must be a prefix of the tree of the argument.

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

    Give the name where the axis is mapped, with `axis_name`.

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
    """An ordered effect stands where no order is defined, such as under `vmap`.

    The lanes of a `vmap` run together, so there is no first one. Drop `ordered=True`, or loop with `lax.scan` or
    `lax.map`, which do have an order.

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

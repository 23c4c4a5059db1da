"""What cannot be done with arrays that are split over a mesh of devices."""

from __future__ import annotations

from weft.base.errors.layout import WeftError


class ShardingTypeError(WeftError, TypeError):
    """Operands are split over Explicit axes of a mesh in a way that does not say how the result is split.

    Over Explicit axes the type of a value says how it is split, and no operation moves data unless it is asked to.
    Operands of an elementwise operation are split alike or whole, a dimension that an operation needs whole is whole,
    and an axis splits one dimension of a result.

    Wrong::

        import weft
        import weft.numpy as wnp
        from weft.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P

        mesh = AbstractMesh((2, 2), ("x", "y"), (AxisType.Explicit, AxisType.Explicit))
        a = weft.ShapeDtypeStruct((8, 4), wnp.float32, sharding=NamedSharding(mesh, P("x", None)))
        b = weft.ShapeDtypeStruct((8, 4), wnp.float32, sharding=NamedSharding(mesh, P("y", None)))
        weft.make_jaxpr(lambda a, b: a + b)(a, b)

    Right::

        import weft
        import weft.numpy as wnp
        from weft.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec as P

        mesh = AbstractMesh((2, 2), ("x", "y"), (AxisType.Explicit, AxisType.Explicit))
        a = weft.ShapeDtypeStruct((8, 4), wnp.float32, sharding=NamedSharding(mesh, P("x", None)))
        b = weft.ShapeDtypeStruct((8, 4), wnp.float32, sharding=NamedSharding(mesh, P(None, "y")))
        weft.make_jaxpr(lambda a, b: a + b)(a, b)
    """

"""What cannot be done with arrays that are split over a mesh of devices."""

from __future__ import annotations

from weft.base.errors.layout import WeftError


class ShardingTypeError(WeftError, TypeError):
    """The shardings of operands over Explicit mesh axes do not determine the sharding of the result.

    Over Explicit axes the type of a value contains its sharding, and no operation communicates implicitly. The operands
    of an elementwise operation must be sharded alike or not at all, some operations require a dimension that is not
    sharded, and an axis can shard only one dimension of a result.

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

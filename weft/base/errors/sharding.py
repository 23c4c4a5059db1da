"""Errors of arrays that are sharded over a mesh of devices."""

from __future__ import annotations

from weft.base.errors.layout import WeftError


class CommunicationError(WeftError, RuntimeError):
    """A program for several devices communicates or replicates more than its contract allows.

    `jit(f, comm=..., max_replicated=...)` limits the communication between devices and the bytes that are replicated on
    every device. The program is checked when it is compiled, before it runs. The message lists the collectives with the
    lines that need them and the shardings that cause them.

    Wrong::

        import weft
        import weft.numpy as wnp
        from weft.sharding import AxisType, NamedSharding, PartitionSpec as P

        mesh = weft.make_mesh((weft.device_count(),), ("d",), (AxisType.Auto,))
        x = weft.device_put(wnp.ones((16, 16)), NamedSharding(mesh, P("d")))
        weft.jit(lambda x: wnp.sort(x, axis=0), comm={"all_gather": 0, "all_to_all": 0})(x)

    Right::

        import weft
        import weft.numpy as wnp
        from weft.sharding import AxisType, NamedSharding, PartitionSpec as P

        mesh = weft.make_mesh((weft.device_count(),), ("d",), (AxisType.Auto,))
        x = weft.device_put(wnp.ones((16, 16)), NamedSharding(mesh, P(None, "d")))
        weft.jit(lambda x: wnp.sort(x, axis=0), comm={"all_gather": 0, "all_to_all": 0})(x)
    """


class ShardingTypeError(WeftError, ValueError, TypeError):
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

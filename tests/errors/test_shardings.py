"""Messages for the usual mistakes with meshes and shardings: the fault, what was received, and what to write, with the
bytes it sends."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as onp
import pytest

import weft
import weft.numpy as np
from weft import lax
from weft.errors import WeftError
from weft.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

ONES = onp.ones((512, 512), onp.float32)


def line_of(devices: Any) -> Mesh:
    return Mesh(onp.array(devices), ("d",))


@functools.cache
def mesh() -> Mesh:
    return line_of(weft.devices()[:4])


@functools.cache
def explicit() -> Mesh:
    return weft.make_mesh((4,), ("d",), (AxisType.Explicit,), devices=weft.devices()[:4])


def split(*entries: Any, on: Mesh | None = None) -> NamedSharding:
    return NamedSharding(on or mesh(), P(*entries))


def on_two_meshes() -> Any:
    other = line_of(weft.devices()[4:8])
    add = weft.jit(lambda a, b: a + b)
    return add(weft.device_put(np.ones(8), split("d")), weft.device_put(np.ones(8), split("d", on=other)))


def mapped(body: Callable[..., Any], out: Any) -> Any:
    return weft.jit(weft.shard_map(body, mesh=mesh(), in_specs=P("d"), out_specs=out))(np.ones(8))


def explicitly(function: Callable[..., Any], *specs: Any) -> Any:
    with weft.set_mesh(explicit()):
        return function(*(weft.device_put(ONES, split(*own, on=explicit())) for own in specs))


def product(x: Any, y: Any) -> Any:
    return x @ y


def added(x: Any, y: Any) -> Any:
    h = x * 2
    return h + y


def concatenated(x: Any, y: Any) -> Any:
    return np.concatenate([x, y])


def resharded_late(x: Any) -> Any:
    w = weft.sharding.reshard(np.ones((512, 512)), P(None, "d"))
    return x + w


def reshaped(x: Any) -> Any:
    return x.reshape(512 * 256, 2)


def cut(x: Any) -> Any:
    return x[2:6]


def ordered(x: Any) -> Any:
    return np.sort(x, 0)


CASES: dict[str, tuple[Callable[[], Any], str]] = {
    "unknown axis": (
        lambda: split("q"),
        """Resource axis: q of P('q',) is not found in mesh, whose axes are 'd'.
  received  P('q',) for Mesh('d': 4, axis_types=(Auto,))
  fix       the names of axes that the mesh was made with""",
    ),
    "axis used twice": (
        lambda: split("d", "d"),
        """An axis of a mesh must split one dimension only; P('d', 'd') has duplicate entries for `d`.
  received  P('d', 'd') for Mesh('d': 4, axis_types=(Auto,))
  fix       'd' for one dimension, another axis or None for the other""",
    ),
    "rank too small": (
        lambda: weft.device_put(np.ones(8), split("d", None)),
        """P('d', None) has entries for 2 dimensions: it is only valid for values of rank at least 2, but was\
 applied to a value of rank 1.
  received  shape (8,) with NamedSharding(mesh=Mesh('d': 4, axis_types=(Auto,)), spec=P('d', None), memory_kind=device)
  fix       at most 1 entries; dimensions without one are whole""",
    ),
    "mixed meshes": (
        on_two_meshes,
        """The arguments and constraints of a call must be on one mesh.
  received  Mesh('d': 4, axis_types=(Auto,)) of devices [0, 1, 2, 3] (argument a) and Mesh('d': 4, axis_types=(Auto,))\
 of devices [4, 5, 6, 7] (argument b)
  fix       weft.device_put(x, weft.NamedSharding(mesh, spec))   to bring all arguments to one mesh""",
    ),
    "psum of unknown axis": (
        lambda: mapped(lambda x: lax.psum(x, "z"), P()),
        """There is no axis named 'z' here; in scope: 'd'.
  fix       one of the axes in scope: 'd'
  or        call this inside vmap(f, axis_name='z')
  or        call this inside shard_map(f, mesh=...), whose mesh has an axis 'z'""",
    ),
    "out_specs whole but varying": (
        lambda: mapped(lambda x: x * 2, P()),
        """shard_map of <lambda>: the result is to be the same on all devices along 'd', but it varies along it.\
 It depends on `x` (P('d',)), which is split, from LINE on (mul).
  received  f32[2]{V:d} for out_specs that require replication, which is not statically inferred: out_specs is P()\
 which implies that the output value is only varying across mesh axes {} and not {d}, but it was inferred to be\
 possibly varying over {d}
  fix       lax.psum(x, 'd') or lax.pmean(x, 'd')   to combine what the devices have
  or        P('d') in out_specs   to put the parts of the devices together
  or        check_vma=False   if you know that it is the same""",
    ),
    "explicit: a sum over what is split": (
        lambda: explicitly(weft.jit(product), (None, "d"), ("d",)),
        """`dot_general` sums over dimension 1 of `x` and dimension 0 of `y`, which are split over 'd': whether the\
 result is unreduced, split or summed on every device is not said.
  received  `x`: f32[512,512@d], from argument x of product, jit at LINE
            `y`: f32[512@d,512], from argument y of product, jit at LINE
  fix       out_sharding=P(None, None) in the call, for the sum on all devices   sends 1.57 MB a device
  or        weft.sharding.auto_axes(f, out_sharding=spec)   around what the compiler is to split
  or        weft.sharding.reshard(x, P(None, None))   sends 786 kB a device
  or        weft.sharding.reshard(y, P(None, None))   sends 786 kB a device""",
    ),
    "explicit: a sum of values that are split differently": (
        lambda: explicitly(weft.jit(added), ("d",), (None, "d")),
        """The result of `add` would be split twice over 'd': P('d', 'd').
  received  `h`: f32[512@d,512], from argument x of added, jit at LINE
            `y`: f32[512,512@d], from argument y of added, jit at LINE
  fix       weft.sharding.reshard(h, P(None, 'd'))   sends 197 kB a device
  or        weft.sharding.reshard(y, P('d', None))   sends 197 kB a device
  or        weft.sharding.auto_axes(f, out_sharding=spec)   around what the compiler is to split""",
    ),
    "explicit: the same without a program": (
        lambda: explicitly(added, ("d",), (None, "d")),
        """The result of `add` would be split twice over 'd': P('d', 'd').
  received  `h`: f32[512@d,512], `y`: f32[512,512@d]
  fix       weft.sharding.reshard(h, P(None, 'd'))   sends 197 kB a device
  or        weft.sharding.reshard(y, P('d', None))   sends 197 kB a device
  or        weft.sharding.auto_axes(f, out_sharding=spec)   around what the compiler is to split""",
    ),
    "explicit: a line that splits": (
        lambda: explicitly(weft.jit(resharded_late), ("d",)),
        """The result of `add` would be split twice over 'd': P('d', 'd').
  received  `x`: f32[512@d,512], from argument x of resharded_late, jit at LINE
            `w`: f32[512,512@d], from LINE
  fix       weft.sharding.reshard(x, P(None, 'd'))   sends 197 kB a device
  or        weft.sharding.reshard(w, P('d', None))   sends 197 kB a device
  or        weft.sharding.auto_axes(f, out_sharding=spec)   around what the compiler is to split""",
    ),
    "explicit: a concatenation of what is split and what is whole": (
        lambda: explicitly(weft.jit(concatenated), ("d",), ()),
        """`concatenate` has `x` and `y`, whose dimensions belong together; one is split over 'd', the other is whole.
  received  `x`: f32[512@d,512], from argument x of concatenated, jit at LINE
            `y`: f32[512,512]
  fix       weft.sharding.reshard(y, P('d', None))   sends nothing
  or        weft.sharding.reshard(x, P(None, None))   sends 786 kB a device
  or        weft.sharding.auto_axes(f, out_sharding=spec)   around what the compiler is to split""",
    ),
    "explicit: a reshape": (
        lambda: explicitly(reshaped, (None, "d")),
        """`reshape` of (512, 512) to (131072, 2) merges or divides dimension 1 of `x`, which is split over 'd':\
 how the result is split is not said.
  received  `x`: f32[512,512@d]
  fix       weft.sharding.reshard(x, P(None, None))   sends 786 kB a device
  or        out_sharding=spec in the call, where the function takes it
  or        weft.sharding.auto_axes(f, out_sharding=spec)   around what the compiler is to split""",
    ),
    "explicit: an index": (
        lambda: explicitly(cut, ("d",)),
        """An index takes a part of dimension 0 of `x`, which is split over 'd': how the result is split is not said.
  received  `x`: f32[512@d,512]
  fix       x.at[...].get(out_sharding=spec)
  or        lax.slice and lax.dynamic_slice, whose results are split as the operand is, if that is even
  or        weft.sharding.reshard(x, P(None, None))   sends 786 kB a device""",
    ),
    "explicit: a sort": (
        lambda: explicitly(ordered, ("d",)),
        """`sort` needs dimension 0 of `x` whole; it is split over 'd'.
  received  `x`: f32[512@d,512]
  fix       weft.sharding.reshard(x, P(None, None))   sends 786 kB a device
  or        out_sharding=spec in the call, where the function takes it
  or        weft.sharding.auto_axes(f, out_sharding=spec)   around what the compiler is to split""",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_texts(name: str) -> None:
    make, expected = CASES[name]
    with pytest.raises(WeftError) as caught:
        make()
    lines = [line for line in str(caught.value).splitlines() if not line.startswith(("  at  ", "  more  "))]
    assert caught.value.at is not None and "test_shardings.py" in caught.value.at
    text = re.sub(r"test_shardings\.py:\d+:  [^\n]*?(?= on \(mul\)|\n|$)", "LINE", "\n".join(lines))
    assert text == expected


def test_what_is_no_mistake() -> None:
    """JAX refuses the first two, or leaves the second whole; carries of loops become varying by themselves."""
    five = weft.device_put(np.ones((5, 3)), split("d"))
    assert [s.data.shape[0] for s in five.addressable_shards] == [2, 2, 1, 0]
    result = weft.jit(lambda x: x[:5], out_shardings=split("d"))(np.ones((8, 3)))
    assert result.sharding.spec == P("d") and result.shape == (5, 3)
    carried = lambda x: lax.scan(lambda c, _: (c + x.sum(), None), 0.0, None, length=3)[0][None]
    onp.testing.assert_array_equal(mapped(carried, P("d")), [6.0] * 4)


def test_what_is_sent_is_said() -> None:
    """A contraction over what is split is summed without a word in JAX; here it is reported, and contracts hold."""
    options: Any = {"in_shardings": (split(None, "d"), split("d")), "out_shardings": split("d")}
    compiled = weft.jit(product, **options).lower(ONES, ONES).compile()
    (row,) = compiled.communication
    assert row.kind == "reduce_scatter" and "test_shardings.py" in str(row.line) and "sums over a split" in row.reason
    with pytest.raises(WeftError, match="reduce_scatter"):
        weft.jit(product, comm={"reduce_scatter": 0}, **options)(ONES, ONES)

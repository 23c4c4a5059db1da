"""Seeing how programs on many devices are split and what they send."""

from __future__ import annotations

from typing import Any

import numpy as onp
import pytest

import weft
import weft.lax as lax
import weft.numpy as np
from weft.errors import ArgumentError, CommunicationError
from weft.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P, Sharding


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return weft.make_mesh((4, 2), ("d", "t"), (AxisType.Auto,) * 2)


def put(x: Any, mesh: Mesh, *spec: Any) -> Any:
    return weft.device_put(x, NamedSharding(mesh, P(*spec)))


def test_pictures(mesh: Mesh, capsys: Any) -> None:
    weft.debug.visualize_array_sharding(put(onp.zeros((4, 6)), mesh, "d"))
    rule, frame = "─" * 12, []
    for i in range(4):
        frame += [f"├{rule}┤" if i else f"┌{rule}┐", f"│{f'CPU {2 * i},{2 * i + 1}':^12}│"]
    assert capsys.readouterr().out == "\n".join([*frame, f"└{rule}┘", ""])
    weft.debug.visualize_sharding((5, 3), NamedSharding(mesh.abstract_mesh, P("d", "t")))
    shown = capsys.readouterr().out
    assert "device 6│device 7" in shown
    assert [line.strip("│").split("│") for line in shown.split("\n") if "x" in line] == [
        ["  2x2   ", "  2x1   "],
        ["  2x2   ", "  2x1   "],
        ["  1x2   ", "  1x1   "],
        ["  0x2   ", "  0x1   "],
    ]
    weft.debug.visualize_array_sharding(np.float32(1) + np.zeros(()))
    assert "CPU 0" in capsys.readouterr().out
    with pytest.raises(ArgumentError, match="at most two"):
        cube = weft.make_mesh((2, 2, 2), ("a", "b", "c"))
        weft.debug.visualize_sharding((2, 2, 2), NamedSharding(cube, P("a", "b", "c")))


def test_shardings_inside_of_programs_are_seen_when_they_are_compiled(mesh: Mesh) -> None:
    seen: list[Sharding] = []

    @weft.jit
    def f(x: Any) -> Any:
        weft.debug.inspect_array_sharding(x * 2, callback=seen.append)

        def body(carry: Any, _: Any) -> Any:
            weft.debug.inspect_array_sharding(carry.T, callback=seen.append)
            return carry + 1, None

        return lax.scan(body, x, None, length=2)[0].sum()

    x = put(onp.ones((8, 4), onp.float32), mesh, "d")
    for _ in range(2):
        assert f(x) == 96
    assert seen == [NamedSharding(mesh, P("d")), NamedSharding(mesh, P(None, "d"))]
    seen.clear()
    weft.grad(f)(onp.ones((8, 4), onp.float32))
    assert {type(s).__name__ for s in seen} == {"SingleDeviceSharding"}
    weft.vmap(f)(onp.ones((3, 8, 4), onp.float32))


def step(params: Any, x: Any) -> Any:
    def loss(params: Any) -> Any:
        h = x
        for w in params.values():
            h = np.tanh(h @ w)
        return (h**2).mean()

    return weft.tree.map(lambda a, b: a - 0.1 * b, params, weft.grad(loss)(params))


def arguments(mesh: Mesh) -> tuple[Any, Any]:
    params = {name: put(onp.ones((16, 16), onp.float32), mesh, "d") for name in "ab"}
    return params, put(onp.ones((8, 16), onp.float32), mesh, "d")


def test_each_collective_has_its_value_line_and_reason(mesh: Mesh) -> None:
    compiled = weft.jit(step, donate_argnums=0).lower(*arguments(mesh)).compile()
    found = compiled.communication
    assert found.counts() == {"all_gather": 2, "reduce_scatter": 2}
    gather = found[0]
    assert (gather.kind, gather.axis, gather.bytes) == ("all_gather", "d", 768)
    assert gather.value == "params['a']: f32[16,16]"
    assert gather.source.text == "h = np.tanh(h @ w)"
    assert gather.reason == (
        f"params['a'] is stored split over d (argument); dot_general at {gather.line} needs it whole, because its "
        "result is split over d by x (argument)"
    )
    assert "sums over a split dimension" in found[-1].reason
    assert found.total_bytes == 4 * 768
    assert "4 collectives, 3.07 kB sent by each device" in repr(found)
    assert found._repr_html_().count("<tr>") == 5
    assert compiled.memory_analysis().argument_size_in_bytes == 2 * 256 + 128
    assert compiled.cost_analysis()["flops"] > 0
    alone = weft.jit(step).lower({"a": onp.ones((4, 4))}, onp.ones((2, 4))).compile()
    assert repr(alone.communication) == "nothing is sent"


def test_collectives_that_are_written_and_those_of_loops(mesh: Mesh) -> None:
    def f(x: Any) -> Any:
        return lax.scan(lambda c, _: (lax.psum(c, "d") / 4, None), x, None, length=3)[0]

    mapped = weft.shard_map(f, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False)
    (row,) = weft.jit(mapped).lower(onp.ones((8, 2), onp.float32)).compile().communication
    assert (row.kind, row.axis, row.bytes, row.times) == ("psum", "d", 2 * 16 * 3 / 4, 3)


def test_the_page_shows_what_is_sent(mesh: Mesh) -> None:
    def f(x: Any) -> Any:
        return np.sin(x) - x.mean(0)

    explanation = weft.explain(f, write=False)(put(onp.ones((8, 4), onp.float32), mesh, None, "t"))
    assert explanation.data["communication"] == []
    explanation = weft.explain(f, write=False)(put(onp.ones((8, 4), onp.float32), mesh, "d", "t"))
    (row,) = [row for row in explanation.data["communication"] if row["kind"] == "psum"]
    assert row["id"] in explanation.data["related"]
    assert explanation.data["runs"] > 0
    assert "x is split over d (argument)" in row["reason"] and "x is split over d (argument)" in explanation.html


def test_contracts_fail_when_a_program_is_compiled(mesh: Mesh) -> None:
    args = arguments(mesh)
    options: dict[str, Any] = {"donate_argnums": 0}
    with pytest.raises(CommunicationError, match=r"(?s)0 all_gather, and the program has 2.*params\['a'\].*768 B"):
        weft.jit(step, comm={"all_gather": 0}, **options).lower(*args).compile()
    with pytest.raises(CommunicationError, match=r"(?s)send 1 kB, and the program sends 3.07 kB"):
        weft.jit(step, comm="1kB", **options)(*args)
    with pytest.raises(CommunicationError, match="in reduce_scatter"):
        weft.jit(step, comm={"reduce_scatter": "1 KiB", "all_gather": 2}, **options)(*args)
    for allowed in ({"all_gather": 2, "reduce_scatter": "2kB", "psum": 0}, "4kB", 3072):
        weft.jit(step, comm=allowed, **options).lower(*args).compile()

    @weft.jit(max_replicated="100B")
    def f(x: Any, y: Any) -> Any:
        return x.sum() + y.sum()

    x = put(onp.ones((16, 16), onp.float32), mesh, "d")
    f(x, x)
    f(onp.ones((100, 100)), onp.ones(4))  # one device of one has no copies
    with pytest.raises(CommunicationError, match=r"(?s)replicates 260 B.*y: 256 B"):
        f(x, put(onp.ones((8, 8), onp.float32), mesh))
    with pytest.raises(ArgumentError, match="kinds of collectives"):
        weft.jit(f, comm={"all_gathers": 0})
    with pytest.raises(ArgumentError, match="number of bytes"):
        weft.jit(f, comm="much")


def test_gradients_of_several_batches_are_summed_once(mesh: Mesh) -> None:
    params = {"up": onp.linspace(-1, 1, 128, dtype=onp.float32).reshape(8, 16), "down": onp.full((16, 4), 0.1)}
    params = weft.tree.map(lambda p: np.asarray(p, "float32"), params)
    batches = onp.sin(onp.arange(3 * 16 * 8, dtype=onp.float32)).reshape(3, 16, 8)

    def step(params: Any, batches: Any) -> Any:
        loss = lambda params, x: np.mean((np.tanh(x @ params["up"]) @ params["down"]) ** 2)

        def add(total: Any, batch: Any) -> Any:
            return weft.tree.map(np.add, total, weft.value_and_grad(loss)(params, batch)), None

        zeros = (0.0, weft.tree.map(np.zeros_like, params))
        (value, gradients), _ = lax.scan(add, zeros, batches)
        return weft.tree.map(lambda p, g: p - 0.1 * g / len(batches), params, gradients), value / len(batches)

    args = (
        weft.device_put(params, NamedSharding(mesh, P())),
        weft.device_put(batches, NamedSharding(mesh, P(None, "d"))),
    )
    function = weft.jit(step, comm={"psum": 3, "all_gather": 0})
    assert function.lower(*args).compile().communication.counts() == {"psum": 3}
    for a, b in zip(weft.tree.leaves(function(*args)), weft.tree.leaves(weft.jit(step)(params, batches)), strict=True):
        onp.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
    with pytest.raises(CommunicationError, match="allows 2 psum, and the program has 3"):
        weft.jit(step, comm={"psum": 2})(*args)

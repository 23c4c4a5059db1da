"""The verifier of partitioned programs finds what is wrong with them: values, operations, and whole local jaxprs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as onp
import pytest

import weft
import weft.lax as lax
import weft.numpy as np
from tests.compiler.host import partition
from weft.base.errors import InternalError
from weft.base.settings import enable_checks
from weft.compiler.partition import bodies as module
from weft.compiler.partition.bodies import BodyPartitioner
from weft.compiler.partition.driver import prepare
from weft.compiler.partition.rules import Dims, ShardingRule
from weft.compiler.partition.verify import check_operation, check_value, verify_local
from weft.ir.jaxpr import Jaxpr, Var
from weft.ir.types import array_type

SIZES = {"x": 4, "y": 2}
WHOLE: Dims = ((), ())
COLUMNS: Dims = ((), ("x",))
ROWS: Dims = (("x",), ())
F32 = onp.dtype(onp.float32)
SQUARE = array_type((8, 8), F32)


def staged(function: Callable[..., Any], *shapes: Sequence[int]) -> Jaxpr:
    """The jaxpr of a function of one device, whose axes are those of the mesh."""
    jaxpr = weft.make_jaxpr(function, axis_env=list(SIZES.items()))(*(onp.zeros(s, F32) for s in shapes))
    return prepare(jaxpr)


def fails(text: str) -> Any:
    return pytest.raises(InternalError, match=text)


def test_a_sum_that_is_missing_or_over_another_axis_is_found() -> None:
    shapes = ((8, 4), (4, 8))
    right = staged(lambda a, w: lax.psum(a @ w, "x"), *shapes)
    verify_local(right, [COLUMNS, ROWS], [WHOLE], [SQUARE], SIZES)
    for wrong in (
        lambda a, w: a @ w,
        lambda a, w: lax.psum(a @ w, "y"),
        lambda a, w: lax.ppermute(a @ w, "x", [(0, 1)]),
    ):
        with fails(r"Result 0 may differ between devices along \['x'\]"):
            verify_local(staged(wrong, *shapes), [COLUMNS, ROWS], [WHOLE], [SQUARE], SIZES)
    with fails("communicates over 'x', which the mesh"):
        verify_local(right, [WHOLE, WHOLE], [WHOLE], [SQUARE], {"y": 2})


def test_a_sum_that_is_missing_after_a_loop_is_found() -> None:
    def accumulated(a: Any, total: bool, start: float = 0.0) -> Any:
        found = lax.scan(lambda c, x: (c + x.T @ x, None), np.full((8, 8), start), a)[0]
        return lax.psum(found, "x") if total else found

    dims: list[Dims] = [((), ("x",), ())]
    verify_local(staged(lambda a: accumulated(a, True), (3, 2, 8)), dims, [WHOLE], [SQUARE], SIZES)
    with fails(r"Result 0 may differ between devices along \['x'\]"):
        verify_local(staged(lambda a: accumulated(a, False), (3, 2, 8)), dims, [WHOLE], [SQUARE], SIZES)
    with fails("Along 'x' its operands are .*replicated, a partial sum"):  # the first value is counted on every device
        verify_local(staged(lambda a: accumulated(a, True, 1.0), (3, 2, 8)), dims, [WHOLE], [SQUARE], SIZES)


def test_devices_meet_only_where_all_of_them_are() -> None:
    total = lambda a: lax.psum(a.sum(), "x")

    def branch(a: Any, whole: bool) -> Any:
        decides = total(a) if whole else a[0, 0]
        return lax.cond(decides > 0, lambda b: total(b), lambda b: 0.0, a)

    def loop(a: Any, whole: bool) -> Any:
        more = lambda c: (total(c[1]) if whole else c[1][0, 0]) < 3
        return lax.while_loop(more, lambda c: (total(c[1]), c[1] + 1), (0.0, a))[0]

    def inner(a: Any, whole: bool) -> Any:
        """The predicate begins to differ with the second iteration."""

        def body(carry: Any, _: Any) -> Any:
            flag, value = carry
            value = lax.cond(flag > 0, lambda v: v + total(a), lambda v: v, value)
            return (flag if whole else flag + a[0, 0], value), None

        return lax.scan(body, (np.float32(1), np.float32(0)), None, length=3)[0][1]

    scalar = array_type((), F32)
    for function in (branch, loop, inner):
        verify_local(staged(lambda a: function(a, True), (2, 8)), [ROWS], [()], [scalar], SIZES)  # noqa: B023
        wrong = staged(lambda a: function(a, False), (2, 8))  # noqa: B023
        with fails("The predicate of .* must be equal on all devices"):
            verify_local(wrong, [ROWS], [()], [scalar], SIZES)
        verify_local(wrong, [ROWS], [()], [scalar], SIZES, manual=frozenset("x"))  # the user's affair


@pytest.mark.parametrize(
    ("dims", "unreduced", "shape", "text"),
    [
        ((("x",), ("x",)), (), (2, 4), "uses the axis 'x' twice"),
        (ROWS, ("x",), (2, 16), "uses the axis 'x' twice"),
        ((("z",), ()), (), (8, 16), "which the mesh does not have"),
        (((), (("x"), "y")), (), (8, 4), r"A shard of f32\[8,16\]"),
        ((("x", "y"), ()), (), (8, 16), r"A shard of f32\[8,16\]"),
    ],
)  # fmt: skip
def test_values_are_split_in_one_way(dims: Dims, unreduced: Any, shape: tuple[int, ...], text: str) -> None:
    with fails(text):
        check_value(Var(array_type((8, 16), F32)), dims, unreduced, array_type(shape, F32), SIZES, None)


@pytest.mark.parametrize(
    ("chosen", "unreduced", "text"),
    [
        ({"d0": ("x",), "d1": ("x",)}, (), "split over 'x' twice"),
        ({"d0": ("x",)}, ("x",), "an operand is unreduced over it"),
        ({"d5": ("x",)}, (), "no factor of it"),
    ],
)  # fmt: skip
def test_operations_are_split_in_one_way(chosen: Any, unreduced: Any, text: str) -> None:
    (equation,) = staged(np.sin, (8, 16)).eqns
    with fails(text):
        check_operation(equation, ShardingRule((("d0", "d1"), ("d0", "d1")), 1), chosen, unreduced)


def without(kind: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Collectives of a kind are forgotten."""

    def seed(patch: pytest.MonkeyPatch) -> None:
        reshard = module.reshard
        patch.setattr(module, "reshard", lambda *a, **k: [t for t in reshard(*a, **k) if t.kind != kind])

    return seed


def taken_twice(patch: pytest.MonkeyPatch) -> None:
    """An axis over which a sum waits splits the operation too."""
    choose = BodyPartitioner.choose
    patch.setattr(BodyPartitioner, "choose", lambda self, equation, rule, taken: choose(self, equation, rule, ()))
    patch.setattr(BodyPartitioner, "may_defer", lambda self, v, axes: True)


def split_twice(patch: pytest.MonkeyPatch) -> None:
    """An axis splits all dimensions of a result."""
    patch.setattr(BodyPartitioner, "target", lambda self, v: tuple(("x",) for _ in v.aval.shape))


def other_results(patch: pytest.MonkeyPatch) -> None:
    """Results are as they turn out, not as they were asked for."""
    value = BodyPartitioner.value
    patch.setattr(
        BodyPartitioner,
        "value",
        lambda self, v, dims, e, *why: self.values[v] if e is None else value(self, v, dims, e, *why),
    )


def double_sums(patch: pytest.MonkeyPatch) -> None:
    """The factor that is summed is split over two axes, and only one sum is done."""
    sums = ShardingRule.sums
    patch.setattr(ShardingRule, "sums", lambda self, chosen: (sums(self, chosen)[0][:1], sums(self, chosen)[1]))


@pytest.mark.parametrize(
    "seed",
    [
        without("psum"),
        without("all_gather"),
        without("reduce_scatter"),
        without("slice"),
        taken_twice,
        split_twice,
        other_results,
        double_sums,
    ],
    ids=["psum", "all_gather", "reduce_scatter", "slice", "taken", "twice", "results", "sums"],
)
def test_seeded_faults_are_found(seed: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    def function(a: Any, w: Any, b: Any) -> Any:
        first, second = -(a @ w), a.T @ a
        return first, (np.sin(second) @ second).sum(), np.sort(a, 0), second, a.sum(), -b

    jaxpr = prepare(weft.make_jaxpr(function)(*(onp.zeros(s, F32) for s in ((8, 16), (16, 16), (8, 4)))))
    outs: list[Dims] = [(("x",), ("y",)), (), (("y",), ()), WHOLE, (), ROWS]
    arguments: list[Dims] = [(("x",), ("y",)), (("y",), ()), WHOLE]
    with enable_checks(True):
        partition(jaxpr, SIZES, arguments, outs)
        seed(monkeypatch)
        with pytest.raises(InternalError):
            partition(jaxpr, SIZES, arguments, outs)

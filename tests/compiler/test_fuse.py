"""Laws of fusion: a fused jaxpr returns the same bits, accesses no more memory, and satisfies all rules."""

from __future__ import annotations

import gc
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import weft
from tests.compiler.fuse_programs import PROGRAMS, mlp_gradient, program, random_program
from tests.compiler.host import AVX512, fuse, refusals, run_passes, verify_fusion_pass
from weft.api.inspect import make_jaxpr
from weft.base.errors import InternalError, MissingRuleError
from weft.compiler.emit.dispatch import emit
from weft.compiler.fuse.cost import equation_cost, jaxpr_cost
from weft.compiler.fuse.fusion import fusion, fusions
from weft.compiler.kernel.printer import to_text as kernel_text
from weft.compiler.target import reference_costs
from weft.compiler.target.costs import FusionLimits
from weft.ir.interpreter import run
from weft.ir.jaxpr import Equation, Jaxpr, Var, subjaxprs
from weft.ir.parser import equal, parse
from weft.ir.printer import to_text

DEFAULT_LIMITS = reference_costs.FUSION
TIGHT = replace(DEFAULT_LIMITS, values=4, operands=3, results=2, copies=2, row_bytes=16, single_row_bytes=8, window=3)
RECOMPUTING = replace(DEFAULT_LIMITS, window=2, recompute_weight=64, recompute_bytes=1)


def assert_same_bits(first: list[Any], second: list[Any]) -> None:
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def all_fusions(jaxpr: Jaxpr) -> list[Equation]:
    """Including those of sub-jaxprs."""
    found = fusions(jaxpr)
    for equation in jaxpr.eqns:
        if equation.primitive is not fusion and equation.primitive.higher_order:
            for inner in subjaxprs(equation.params):
                found += all_fusions(inner)
    return found


def check_laws(before: Jaxpr, arrays: list[np.ndarray], limits: FusionLimits = DEFAULT_LIMITS) -> Jaxpr:
    after = fuse(before, limits)
    verify_fusion_pass(before, after)
    with np.errstate(all="ignore"):
        assert_same_bits(run(before, arrays), run(after, arrays))
    for equation in all_fusions(after):
        inner = equation.params["jaxpr"]
        assert equation_cost(equation).bytes <= jaxpr_cost(inner).bytes
        assert len(inner.eqns) <= limits.values and len(inner.invars) <= max(limits.operands, widest(inner))
    assert jaxpr_cost(after).bytes <= jaxpr_cost(before).bytes
    return after


def widest(jaxpr: Jaxpr) -> int:
    """The most operands of one equation, which no limit can lower."""
    return max(len(e.invars) for e in jaxpr.eqns)


@pytest.mark.parametrize("name", PROGRAMS)
def test_fused_jaxprs_are_equivalent(name: str) -> None:
    before, arrays = program(name)
    check_laws(before, arrays)
    check_laws(run_passes(before), arrays)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_laws_hold_within_narrow_limits(name: str) -> None:
    before, arrays = program(name)
    check_laws(run_passes(before), arrays, TIGHT)
    check_laws(run_passes(before), arrays, RECOMPUTING)


@pytest.mark.parametrize("i", range(40))
def test_random_fused_jaxprs_are_equivalent(i: int, rng: np.random.Generator) -> None:
    function, args = random_program(rng, 6 + i)
    if i % 4 == 1:
        chosen = function
        function = weft.grad(lambda *a: sum(leaf.sum() for leaf in chosen(*a)), (0, 1, 2))
    elif i % 4 == 2:
        function = weft.vmap(function, (0, None, None))
        args = (np.stack([args[0], args[0] + 1]), *args[1:])
    before = make_jaxpr(function)(*args)
    check_laws(before, list(args))
    check_laws(run_passes(before), list(args))
    check_laws(before, list(args), TIGHT)
    check_laws(run_passes(before), list(args), RECOMPUTING)


def layer_norm_loss(x: Any, scale: Any, other: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    variance = (x * x).mean(-1, keepdims=True) - mean * mean
    return weft.lax.tanh(((x - mean) * weft.lax.rsqrt(variance + 1e-5) * scale) @ other).sum()


def test_values_of_rows_are_stored_instead_of_rows() -> None:
    """What the gradient of a layer norm reads of it are its operand, means and deviations."""
    arrays = [np.ones(shape, np.float32) for shape in ((64, 256), (256,), (256, 64))]
    before = run_passes(make_jaxpr(weft.grad(layer_norm_loss, (0, 1)))(*arrays))
    stored, computed = (
        [v.aval.shape for e in fuse(before, limits).eqns for v in e.outvars if v not in before.outvars]
        for limits in (DEFAULT_LIMITS, RECOMPUTING)
    )
    assert stored.count((64, 256)) > computed.count((64, 256)) and check_laws(before, arrays, RECOMPUTING)


def test_far_steps_of_an_optimizer_are_one_fusion() -> None:
    """Moments of all parameters come first in a program, then the steps, which need a count."""

    def update(count: Any, parameters: list[Any], moments: list[Any], gradients: list[Any]) -> Any:
        gradients = [weft.numpy.sort(g) for g in gradients]
        moments = [0.9 * m + 0.1 * g for m, g in zip(moments, gradients, strict=True)]
        rate = 1 / (count + 1)
        return [p - rate * m / (1 + m) for p, m in zip(parameters, moments, strict=True)], moments

    arrays = [np.arange(3000 + n, dtype=np.float32) for n in range(6)]
    before = run_passes(make_jaxpr(update)(np.float32(3), arrays, arrays, arrays))
    flat = [np.float32(3), *arrays * 3]
    for limits in (DEFAULT_LIMITS, replace(DEFAULT_LIMITS, window=2)):
        after = check_laws(before, flat, limits)
        assert sum(e.primitive is fusion and len(e.outvars) == 2 for e in after.eqns) == 6


def test_fusion_is_idempotent() -> None:
    after = fuse(program("mlp")[0])
    assert equal(fuse(after), after)


def test_fusions_are_parsed_back() -> None:
    after = fuse(program("written in scan")[0])
    table: list[Any] = []
    assert equal(parse(to_text(after, full=True, table=table), table), after)


def test_equal_layers_have_equal_fusions() -> None:
    """So that their kernels are compiled once."""
    inner = [str(e.params["jaxpr"]) for e in fusions(fuse(run_passes(mlp_gradient(8))))]
    longer = [str(e.params["jaxpr"]) for e in fusions(fuse(run_passes(mlp_gradient(16))))]
    assert len(longer) > len(inner) and set(longer) == set(inner)


def test_a_fusion_is_not_transformed() -> None:
    after = fuse(program("chain")[0])
    with pytest.raises(MissingRuleError, match="before it is compiled"):
        weft.vmap(lambda x, y: weft.ir.interpreter.evaluate(after, x, y))(*(np.ones((2, 6, 10), np.float32),) * 2)


def test_nothing_is_fused_into_the_call_of_a_library() -> None:
    x = np.ones((400, 400), np.complex64)
    before = make_jaxpr(lambda a, b: weft.lax.tanh(a @ b + 1.0))(x, x)
    assert [e.primitive.name for e in fuse(before).eqns] == ["dot_general", "fusion"]


KIND_OF = {
    "chain": ["loop"],
    "softmax": ["row"],
    "softmax of a vector": ["row"],
    "softmax gradient": ["row"],
    "logsumexp": ["row", "all"],
    "layer norm": ["row"],
    "rms norm": ["row", "all", "column"],
    "two siblings": ["column"],
    "several results": ["column"],
    "gather": ["gather"],
    "transposed": ["row", "transpose"],
    "arg max": ["argmax", "loop"],
    "adam": ["loop"],
    "convolution": ["convolution", "window"],
    "generic fold": ["row"],
    "mixed axes": ["column"],
}


@pytest.mark.parametrize("name", KIND_OF)
def test_kinds(name: str) -> None:
    after = fuse(run_passes(program(name)[0]))
    kinds = [e.params["kind"] for e in fusions(after)]
    assert [k for k in dict.fromkeys(kinds) if k != "alias"] == KIND_OF[name]


@pytest.mark.parametrize("name", ["softmax", "softmax gradient", "layer norm", "two siblings", "adam"])
def test_one_kernel(name: str) -> None:
    (only,) = fuse(run_passes(program(name)[0])).eqns
    assert only.primitive is fusion


def test_every_reason_has_a_source_line() -> None:
    before = program("mlp")[0]
    after = fuse(before)
    reasons = [r for e in fusions(after) for r in e.params["reasons"]] + list(refusals(before))
    assert reasons and {r.verdict for r in reasons} == {True, False}
    for reason in reasons:
        assert reason.text.startswith(f"{reason.rule}: {reason.producer} into {reason.consumer}: ")
        assert "\n" not in reason.text


# ---------------------------------------------------------------------------------------------------- the verifier


def changed(after: Jaxpr, position: int = 0, **params: Any) -> Jaxpr:
    equations = list(after.eqns)
    equations[position] = equations[position].replace(params={**equations[position].params, **params})
    return after.replace(eqns=equations)


def test_the_verifier_detects_unfused_equations() -> None:
    before = program("chain")[0]
    with pytest.raises(InternalError, match="is in no fusion"):
        verify_fusion_pass(before, before)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"kind": "spiral"}, "no kind of fusion"),
        ({"kind": "row"}, "has no hero"),
        ({"kind": "row", "hero": 99}, "The hero is equation 99"),
        ({"kind": "gather"}, "no gather"),
        ({"kind": "alias"}, "does more than"),
    ],
)
def test_the_verifier_detects_wrong_kinds(params: dict[str, Any], message: str) -> None:
    before = program("chain")[0]
    with pytest.raises(InternalError, match=message):
        verify_fusion_pass(before, changed(fuse(before), **params))


# The message, the kind, the hero, and the inner program of one fusion that is a program's only equation.
WRONG = [
    ("different spaces", "loop", None, """a:f32[4,5]. let
        b:f32[4,5] = sin a
        c:f32[5,4] = transpose[permutation=(1, 0)] a
      in (b, c)"""),
    ("leaves the space", "row", 0, """a:f32[4,5]. let
        b:f32[4] = reduce_sum[axes=(1,)] a
        c:f32[4,5] = slice[start_indices=(0, 0) limit_indices=(4, 5) strides=(1, 1)] a
        d:f32[4] = rev[dimensions=(0,)] b
      in (d,)"""),
    ("neither", "row", 0, """a:f32[4,5]. let
        b:f32[4] = reduce_sum[axes=(1,)] a
        c:f32[5] = iota[dimension=0 dtype=float32 shape=(5,)]
      in (b, c)"""),
    ("does not reduce as", "row", 0, """a:f32[4,5]. let
        b:f32[4] = reduce_sum[axes=(1,)] a
        c:f32[5] = reduce_sum[axes=(0,)] a
        d:f32[4,5] = broadcast_in_dim[broadcast_dimensions=(1,) shape=(4, 5)] c
      in (b, d)"""),
    ("must be in memory", "dynamic_update_slice", 1, """a:f32[4] i:i32[]. let
        b:f32[4] = sin a
        c:f32[4] = dynamic_update_slice b a i
      in (c,)"""),
    ("writes in place", "dynamic_update_slice", 1, """a:f32[4] i:i32[]. let
        b:f32[4] = sin a
        c:f32[4] = dynamic_update_slice a b i
      in (c,)"""),
    ("not at its index", "contraction", 0, """a:f32[4,4]. let
        b:f32[4,4] = dot_general[dimension_numbers=(((1,), (0,)), ((), ()))] a a
        c:f32[4,4] = rev[dimensions=(0,)] b
      in (c,)"""),
    ("is in a fusion", "loop", None, """a:f32[4]. let
        b:f32[4] = optimization_barrier a
      in (b,)"""),
    ("second hero", "sort", 0, """a:f32[4,4]. let
        b:f32[4,4] = sort[dimension=0 is_stable=True num_keys=1] a
        c:f32[4,4] = cumsum[axis=0 reverse=False] a
      in (b,)"""),
]  # fmt: skip


@pytest.mark.parametrize(("message", "kind", "hero", "text"), WRONG)
def test_the_verifier_detects_wrong_fusions(message: str, kind: str, hero: int | None, text: str) -> None:
    inner = parse("{ lambda ; " + text + " }")
    params = {"jaxpr": inner, "kind": kind, "hero": hero, "reasons": ()}
    results = [Var(v.aval) for v in inner.outvars]
    wrong = Jaxpr((), inner.invars, results, [Equation(inner.invars, results, fusion, params)])
    with pytest.raises(InternalError, match=message):
        verify_fusion_pass(wrong, wrong)


def test_the_verifier_detects_effects_out_of_order() -> None:
    before = program("effects")[0]
    after = fuse(before)
    callbacks = [i for i, e in enumerate(after.eqns) if e.effects]
    swapped = list(after.eqns)
    first, second = callbacks
    # The operands of both are arguments or made before the first, so this order would run.
    moved = swapped.pop(second)
    swapped.insert(first, moved)
    with pytest.raises(Exception, match=r"order|before it is defined"):
        verify_fusion_pass(before, after.replace(eqns=swapped))


# -------------------------------------------------------------------------------------------------------- how long


def seconds_for_each_equation(layers: int) -> float:
    best = np.inf
    for _ in range(5):
        before = run_passes(mlp_gradient(layers))
        gc.collect()
        start = time.process_time()
        fuse(before)
        best = min(best, (time.process_time() - start) / len(before.eqns))
    return best


@pytest.mark.timing
def test_the_pass_is_quick_and_linear() -> None:
    few, many = seconds_for_each_equation(12), seconds_for_each_equation(48)
    print(f"{few * 1e6:.1f} us an equation for 12 layers, {many * 1e6:.1f} for 48")
    assert few <= 50e-6
    assert many <= 2.5 * few


def test_a_gradient_of_an_associative_scan_is_not_one_kernel() -> None:
    """Its pads and slices meet again and again; in one fusion each of them would be computed at many indices."""

    def loss(a: Any, b: Any) -> Any:
        combine = lambda left, right: (left[0] * right[0], right[0] * left[1] + right[1])
        return weft.lax.associative_scan(combine, (a, b), axis=1)[1].sum()

    x = np.ones((2, 64, 16), np.float32)
    program = fuse(run_passes(weft.make_jaxpr(weft.grad(loss, (0, 1)))(x, x)))
    result = [f.params for f in fusions(program) if f.params["kind"] != "alias"]
    emissions = [emit(params["kind"], params["jaxpr"], params["hero"], AVX512) for params in result]
    assert max(len(kernel_text(launch.kernel).splitlines()) for e in emissions for launch in e.launches) < 200

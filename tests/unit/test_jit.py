"""jit: static and donated arguments, caches, stages, leaks, results and closures."""

from __future__ import annotations

import copy
import functools
import inspect
import logging
import pickle
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import errors
from weft.api.flat import MISS
from weft.base.settings import overrides

pytestmark = pytest.mark.tiny


class Counted:
    """Function that counts how often Python runs it."""

    def __init__(self, function):
        self.function, self.count = function, 0

    def __call__(self, *args, **kwargs):
        self.count += 1
        return self.function(*args, **kwargs)


def names_this_file(error: BaseException) -> bool:
    return "  at        test_jit.py:" in str(error)


# -- static arguments -------------------------------------------------------------------------------------------------


def test_static_argument_by_position_by_name_and_by_default() -> None:
    def scale(x, n=2):
        assert isinstance(n, int)
        return x * n

    by_position, by_name = weft.jit(scale, static_argnums=1), weft.jit(scale, static_argnames="n")
    for f in (by_position, by_name):
        assert [float(f(1.0, 3)), float(f(1.0, n=4)), float(f(1.0))] == [3.0, 4.0, 2.0]
    assert float(weft.jit(scale, static_argnums=-1)(1.0, 5)) == 5.0


def test_static_keyword_only_argument_keeps_its_default() -> None:
    @functools.partial(weft.jit, static_argnames=("n",))
    def scale(x, *, n=2):
        return x * n if n > 1 else x

    assert [float(scale(3.0)), float(scale(3.0, n=1))] == [6.0, 3.0]


def test_static_value_of_another_type_is_another_signature() -> None:
    seen = []
    f = weft.jit(lambda x, n: seen.append(type(n)) or x, static_argnums=1)
    for n in (1, 1.0, True, 1):
        f(2.0, n)
    assert seen == [int, float, bool]


@pytest.mark.parametrize("call", [lambda f: f(1.0, [1]), lambda f: f(1.0, n=[1])])
def test_unhashable_static_argument_is_named(call) -> None:
    f = weft.jit(lambda x, n: x, static_argnames="n")
    with pytest.raises(errors.UnhashableStaticArgumentError, match=r"static argument `n` is not hashable") as caught:
        call(f)
    assert names_this_file(caught.value) and "[1] of type list" in str(caught.value)


def test_static_argument_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match=r"no parameter 'm'") as caught:
        weft.jit(lambda x, n: x, static_argnames="m")
    assert names_this_file(caught.value)
    with pytest.raises(ValueError, match=r"there is no number 2"):
        weft.jit(lambda x, n: x, static_argnums=2)


def test_paths_in_errors_skip_static_arguments() -> None:
    f = weft.jit(lambda mode, params: params, static_argnums=0)
    with pytest.raises(errors.InvalidInputTypeError, match=r"at params\['w'\]\[1\]") as caught:
        f("train", {"w": [1.0, "two"]})
    assert names_this_file(caught.value) and "static_argnums" in str(caught.value)


def test_methods_partials_and_callable_objects() -> None:
    class Layer:
        def __init__(self, factor):
            self.factor = factor

        @functools.partial(weft.jit, static_argnums=0)
        def __call__(self, x):
            return x * self.factor

    assert float(Layer(3.0)(2.0)) == 6.0
    assert float(weft.jit(functools.partial(lambda a, b: a - b, b=1.0))(3.0)) == 2.0
    assert float(weft.jit(Counted(lambda x: x + 1))(3.0)) == 4.0


# -- donation ---------------------------------------------------------------------------------------------------------


def test_donated_array_is_gone_and_the_error_names_the_call() -> None:
    step = weft.jit(lambda x: x + 1, donate_argnums=0)
    x = wnp.ones(3)
    step(x)  # the donating line
    assert x.is_deleted()
    with pytest.raises(
        errors.DonatedArrayError, match=r"donated to a jitted call at test_jit.py:\d+:  step\(x\)  # the donating"
    ) as caught:
        x + 1
    assert names_this_file(caught.value)


def test_donation_by_name_of_trees_beside_static_arguments() -> None:
    f = weft.jit(lambda n, p, q: {k: v * n for k, v in p.items()}, static_argnums=0, donate_argnames="p")
    p, q = {"a": wnp.ones(2), "b": wnp.ones(2)}, wnp.ones(2)
    assert float(f(3, p, q)["a"][0]) == 3.0
    assert p["a"].is_deleted() and p["b"].is_deleted() and not q.is_deleted()
    q2 = wnp.ones(2)
    weft.jit(lambda x, y: x + y, donate_argnums=1)(q, y=q2)
    assert q2.is_deleted() and not q.is_deleted()


def test_donation_deletes_nothing_that_is_not_an_array_of_ours() -> None:
    f = weft.jit(lambda x: x + 1, donate_argnums=0)
    x = np.ones(2, np.float32)
    assert float(f(x)[0]) == float(f(x)[0]) == 2.0
    assert float(weft.grad(lambda x: f(x).sum())(wnp.ones(2))[0]) == 1.0
    assert float(weft.jit(lambda x: f(x) + x)(wnp.ones(()))) == 3.0


def test_array_donated_beside_itself_is_refused() -> None:
    f = weft.jit(lambda x, y: x + y, donate_argnums=0)
    x = wnp.ones(2)
    with pytest.raises(errors.DonatedArrayError, match="must not be another argument") as caught:
        f(x, x)
    assert names_this_file(caught.value) and not x.is_deleted()


def test_later_calls_are_judged_like_the_first() -> None:
    """They go by a function that was written for the signature, and must refuse what is not of it."""
    less = weft.jit(lambda x: x - x.sum())
    for _ in range(3):
        assert less(np.ones(8, np.float32)).tolist() == [-7.0] * 8
    assert less(np.ones(5, np.float32)).tolist() == [-4.0] * 5
    assert less(np.ones((4, 2), np.float32)).shape == (4, 2)
    assert less(np.ones(8, np.int32)).dtype == np.int32
    doubled = weft.jit(lambda x: x * 2)
    for _ in range(3):
        assert doubled(1.0).dtype == np.float32
    with weft.enable_x64(True):
        assert doubled(1.0).dtype == np.float64
    update = weft.jit(lambda x, y: x.at[0].set(7.0) + y, donate_argnums=0)
    for _ in range(3):
        update(wnp.ones(2), wnp.ones(2))
    x = wnp.ones(2)
    with pytest.raises(errors.DonatedArrayError, match="must not be another argument"):
        update(x, x)
    assert not x.is_deleted()
    for count in (2, 5000):
        ones = weft.jit(lambda count=count: wnp.ones(count))
        for share in (np.asarray, copy.copy):  # a view of NumPy, and another array of the same memory
            for _ in range(3):
                x = ones()
                other = share(x)
                update(x, wnp.ones(count))
                assert np.asarray(other).tolist() == [1.0] * count, "donated memory is somebody else's too"


def test_donation_is_a_matter_of_the_call() -> None:
    """A function that is jitted with and without donation has a program for each."""

    def function(x: Any) -> Any:
        return x.at[0].set(7.0)

    for count in (2, 5000):  # the memory of small arrays is never taken
        x = wnp.ones(count)
        weft.jit(function, donate_argnums=0)(wnp.ones(count))
        assert weft.jit(function)(x)[0] == 7.0 and x.tolist() == [1.0] * count
        outer = weft.jit(lambda x: (weft.jit(function, donate_argnums=0)(x), x))
        assert outer(x)[1].tolist() == [1.0] * count


def test_one_jaxpr_is_called_with_and_without_donation() -> None:
    """An interpreter of the user's may leave donation out of an equation that it binds, and shares its program."""
    donating = weft.jit(lambda x: x * 2 + 1, donate_argnums=0)
    for count in (2, 5000):
        (equation,) = weft.make_jaxpr(lambda x: donating(x))(wnp.ones(count)).eqns
        x = wnp.ones(count)
        equation.primitive.bind(x, **equation.params)
        assert x.is_deleted()
        x = wnp.ones(count)
        (doubled,) = equation.primitive.bind(x, **{**equation.params, "donated": ()})
        assert doubled.tolist() == [3.0] * count and x.tolist() == [1.0] * count


def test_static_and_donated_is_refused() -> None:
    with pytest.raises(ValueError, match="both static and donated"):
        weft.jit(lambda x: x, static_argnums=0, donate_argnums=0)


# -- caches -----------------------------------------------------------------------------------------------------------


def test_jitted_functions_have_the_signature_of_the_function() -> None:
    def f(x: int, y: int = 1) -> int:
        return x

    for follow in (True, False):
        assert str(inspect.signature(weft.jit(f), follow_wrapped=follow)) == str(inspect.signature(f))


def test_one_trace_per_signature() -> None:
    f = Counted(lambda x: x * 2)
    jitted = weft.jit(f)
    for x in (1.0, 2.0, wnp.float32(1), wnp.float32(2), wnp.ones(3), np.ones(3, np.float32), 1, 2):
        jitted(x)
    assert f.count == 4  # weak float, strong float, vector, weak integer


def test_the_cache_belongs_to_the_function() -> None:
    f = Counted(lambda x: x * 2)
    weft.jit(f)(1.0)
    weft.jit(f)(1.0)
    assert f.count == 1
    weft.jit(f, static_argnums=())(2.0)
    assert f.count == 1


def test_nested_calls_and_transformations_trace_once() -> None:
    f = Counted(lambda x: x * 2)
    inner = weft.jit(f)
    weft.jit(lambda x: inner(inner(x)) + inner(x))(1.0)
    weft.grad(inner)(1.0)
    weft.vmap(inner)(wnp.ones(3))  # of an element: strong where 1.0 was weak
    assert f.count == 2


@pytest.mark.parametrize(
    "scope",
    [
        lambda: weft.enable_x64(True),
        lambda: weft.default_matmul_precision("float32"),
        lambda: weft.numpy_dtype_promotion("strict"),
    ],
)
def test_settings_that_change_code_are_part_of_the_key(scope) -> None:
    f = Counted(lambda x: x * x)
    jitted = weft.jit(f)
    jitted(1.0)
    with scope():
        jitted(1.0)
    jitted(1.0)
    assert f.count == 2


def test_named_axes_are_part_of_the_key() -> None:
    f = weft.jit(lambda x: x * weft.lax.axis_size("i"))
    assert float(weft.vmap(f, axis_name="i")(wnp.ones(2))[0]) == 2.0
    assert float(weft.vmap(f, axis_name="i")(wnp.ones(3))[0]) == 3.0


def test_clear_caches() -> None:
    f = Counted(lambda x: x * 2)
    jitted = weft.jit(f)
    jitted(1.0)
    assert jitted.cache_size() == 1
    weft.clear_caches()
    assert jitted.cache_size() == 0
    jitted(1.0)
    assert f.count == 2


def test_keyword_order_does_not_matter() -> None:
    f = Counted(lambda **k: k["a"] - k["b"])
    jitted = weft.jit(f)
    assert float(jitted(a=1.0, b=2.0)) == float(jitted(b=2.0, a=1.0)) == -1.0
    assert f.count == 1


def explained(caplog: pytest.LogCaptureFixture, first, second) -> str:
    @weft.jit
    def loss(params, x):
        return x

    first(loss)
    caplog.clear()
    with weft.explain_cache_misses(True), caplog.at_level(logging.WARNING, logger="weft"):
        second(loss)
    return caplog.text


@pytest.mark.parametrize(
    ("second", "text"),
    [
        (lambda f: f({"w": wnp.ones(3)}, 1.0), r"params['w']: now f32[3], before f32[2]"),
        (lambda f: f({"w": wnp.ones(2)}, wnp.float32(1)), r"x: now f32[], before f32[]"),
        (lambda f: f({"w": wnp.ones(2)}, 1), r"x: now i32[]"),
        (lambda f: f({"w": wnp.ones(2), "b": 0.0}, 1.0), r"keys in only one of them: ['b']"),
    ],
)
def test_cache_misses_are_explained(caplog: pytest.LogCaptureFixture, second, text: str) -> None:
    log = explained(caplog, lambda f: f({"w": wnp.ones(2)}, 1.0), second)
    assert text in log and "TRACING CACHE MISS at test_jit.py:" in log


def test_first_miss_and_hits(caplog: pytest.LogCaptureFixture) -> None:
    call = lambda f: f({"w": wnp.ones(2)}, 1.0)
    assert "never staged before" in explained(caplog, lambda f: None, call)
    assert explained(caplog, call, call) == ""


# -- stages -----------------------------------------------------------------------------------------------------------


def test_stages() -> None:
    f = weft.jit(lambda x, n: {"y": x * n}, static_argnums=1)
    struct = weft.ShapeDtypeStruct((3,), np.float32)
    traced = f.trace(struct, 2)
    assert [e.primitive.name for e in traced.jaxpr.eqns] == ["mul"] and traced.fun_name == "<lambda>"
    compiled = f.lower(struct, 2).compile()
    assert compiled(wnp.ones(3), 2)["y"].tolist() == [2.0, 2.0, 2.0]
    assert compiled.out_info["y"].shape == (3,) and "mul" in compiled.as_text()
    assert f.eval_shape(struct, 2)["y"].dtype == np.float32


def test_stages_tell_of_their_arguments() -> None:
    f = weft.jit(lambda p, n, x, y=1.0: (p["a"] * n + x, y), static_argnums=1, donate_argnums=0)
    traced = f.trace({"a": wnp.ones(2)}, 3, 2.0, y=np.int8(1))
    lowered = traced.lower()
    compiled = lowered.compile()
    for stage in (traced, lowered, compiled):
        (p, x), named = stage.in_avals
        assert (p["a"].short(), x.short(), x.weak_type, named["y"].short()) == ("f32[2]", "f32[]", True, "i8[]")
        assert stage.donate_argnums == (0,)
        infos = weft.tree.leaves(stage.args_info)
        assert [(i.shape, i.dtype.name, i.donated) for i in infos] == [
            ((2,), "float32", True),
            ((), "float32", False),
            ((), "int8", False),
        ]
        assert weft.tree.structure(stage.args_info) == stage.in_tree and type(infos[0]) is weft.stages.ArgInfo
        assert [s.shape for s in stage.out_info] == [(2,), ()]
    assert [t.short() for t in traced.out_avals] == ["f32[2]", "i8[]"]
    assert weft.jit(lambda x: x).trace(1.0).donate_argnums == ()


def test_what_the_compiler_takes() -> None:
    lowered = weft.jit(lambda x: x * 2).lower(1.0)
    for dialect in (None, "jaxpr"):
        assert [e.primitive.name for e in lowered.compiler_ir(dialect).eqns] == ["mul"]
        assert lowered.as_text(dialect) == str(lowered.compiler_ir(dialect)) == str(lowered.jaxpr)
    module = lowered.compiler_ir("stablehlo")
    assert lowered.as_text("stablehlo") == str(module) and "stablehlo.multiply" in module.text
    for ask in (lowered.compiler_ir, lowered.as_text):
        with pytest.raises(ValueError, match="dialect must be") as caught:
            ask("hlo")
        assert "'hlo'" in str(caught.value) and names_this_file(caught.value)


def test_a_struct_is_a_value() -> None:
    struct = weft.ShapeDtypeStruct((2, 3), np.float32, weak_type=True)
    assert (struct.ndim, struct.size, len(struct), struct.is_ref) == (2, 6, 2, False)
    for again in (copy.copy(struct), copy.deepcopy(struct), pickle.loads(pickle.dumps(struct)), struct.update()):
        assert again == struct and hash(again) == hash(struct) and again.weak_type
    assert struct.update(shape=(4,), weak_type=False) == weft.ShapeDtypeStruct((4,), np.float32)
    for name in ("shape", "dtype", "other"):
        with pytest.raises(RuntimeError, match=f"immutable: its {name} cannot be set"):
            setattr(struct, name, (4,))


def test_stages_from_other_stages() -> None:
    traced = weft.jit(lambda x: (x, x * 2)).trace(1.0)
    listed = weft.tree.structure([0, 0])
    lowered = weft.stages.Lowered(traced, traced.args_info, listed, no_kwargs=True, out_types=traced.out_avals)
    assert isinstance(lowered.out_info, list)
    assert lowered.compile()(3.0) == [3.0, 6.0]
    with pytest.raises(NotImplementedError, match="does not support keyword arguments"):
        lowered.compile()(x=3.0)
    ones = wnp.ones(3)
    captured = weft.jit(lambda x: x + ones).trace(1.0)
    assert weft.stages.Compiled(captured, [wnp.full(3, 4.0)])(1.0).tolist() == [5.0] * 3


def test_compiled_function_refuses_other_types_and_structures() -> None:
    compiled = weft.jit(lambda x: x["a"]).lower({"a": wnp.ones(3)}).compile()
    with pytest.raises(errors.InvalidInputTypeError, match=r"was compiled, at args\[0\]\['a'\]") as caught:
        compiled({"a": wnp.ones(4)})
    assert "f32[4] for f32[3]" in str(caught.value) and names_this_file(caught.value)
    with pytest.raises(errors.InvalidInputTypeError, match="does not match the input pytree"):
        compiled({"b": wnp.ones(3)})


def test_a_struct_has_no_values() -> None:
    with pytest.raises(errors.InvalidInputTypeError, match="has a type but no elements") as caught:
        weft.jit(lambda x: x)(weft.ShapeDtypeStruct((3,), np.float32))
    assert names_this_file(caught.value)


def test_inline_leaves_no_call() -> None:
    def program(**options):
        f = weft.jit(lambda x: x * 2, **options)
        return [e.primitive.name for e in weft.make_jaxpr(lambda x: f(x) + 1)(1.0).eqns]

    assert program() == ["jit", "add"] and program(inline=True) == ["mul", "add"]


# -- arguments, results, closures -------------------------------------------------------------------------------------


def test_results_that_are_no_arrays() -> None:
    assert weft.jit(lambda x: None)(1.0) is None
    n, f, b, a = weft.jit(lambda x: (1, 2.0, True, np.arange(3)))(1.0)
    assert (n.dtype, f.dtype, b.dtype, a.dtype) == (np.int32, np.float32, np.bool_, np.int32)
    assert n.weak_type and f.weak_type and not b.weak_type and not a.weak_type
    with pytest.raises(errors.InvalidInputTypeError, match=r"at result\['name'\]") as caught:
        weft.jit(lambda x: {"name": "x"})(1.0)
    assert names_this_file(caught.value)


def test_scalars_that_do_not_fit_are_rejected() -> None:
    for value in (2**40, np.int64(2**40)):
        with pytest.raises(errors.NarrowingOverflowError) as caught:
            weft.jit(lambda x: x)(value)
        assert names_this_file(caught.value)


def test_closures_over_arrays_and_tracers() -> None:
    table = wnp.arange(3.0)
    assert weft.jit(lambda x: x + table)(1.0).tolist() == [1.0, 2.0, 3.0]
    f = lambda x: weft.jit(lambda y: y * x)(2.0)
    assert float(weft.grad(f)(3.0)) == 2.0
    assert float(weft.jit(f)(3.0)) == 6.0
    assert weft.vmap(f)(wnp.arange(2.0)).tolist() == [0.0, 2.0]


def test_a_pullback_can_be_returned() -> None:
    value, pullback = weft.jit(lambda x: weft.vjp(wnp.sin, x))(1.0)
    assert float(pullback(1.0)[0]) == pytest.approx(np.cos(1.0), rel=1e-6)
    assert float(value) == pytest.approx(np.sin(1.0), rel=1e-6)


def test_disable_jit_runs_python() -> None:
    with weft.disable_jit():
        assert weft.jit(lambda x: 1.0 if x > 0 else 2.0)(1.0) == 1.0
        assert weft.lax.cond(True, lambda: "taken", lambda: 1 / 0) == "taken"
        assert weft.lax.while_loop(lambda c: c < 4, lambda c: c + 1, 0) == 4
        assert weft.lax.fori_loop(0, 3, lambda i, c: c + [i], []) == [0, 1, 2]
        carry, ys = weft.lax.scan(lambda c, x: (c + float(x), c), 0.0, wnp.arange(3.0), reverse=True)
        assert carry == 3.0 and ys.tolist() == [3.0, 2.0, 0.0]


def test_ensure_compile_time_eval_knows_what_is_known() -> None:
    @weft.jit
    def f(x):
        with weft.ensure_compile_time_eval():
            n = int(wnp.sum(wnp.arange(3)))
            return wnp.sin(x) * n  # on a traced value: staged as usual

    assert float(f(1.0)) == pytest.approx(3 * np.sin(1.0), rel=1e-6)
    assert float(weft.grad(f)(1.0)) == pytest.approx(3 * np.cos(1.0), rel=1e-6)


def test_names_are_on_the_equations() -> None:
    def f(x):
        with weft.named_scope("outer"):
            return weft.named_call(wnp.sin, name="inner")(x)

    (equation,) = weft.make_jaxpr(f)(1.0).eqns
    assert equation.stack == ("outer", "inner")
    assert equation.source is not None and equation.source.file == __file__
    stacks = {e.stack for e in weft.make_jaxpr(weft.grad(f))(1.0).eqns}
    assert any(stack[0] == "jvp(f)" and "inner" in stack for stack in stacks)
    with pytest.raises(TypeError, match="named_scope: name must be a string"), weft.named_scope(3):  # type: ignore[arg-type]
        pass


# -- leaks ------------------------------------------------------------------------------------------------------------


def leak(transformed) -> tuple[list, object]:
    leaked: list = []

    def f(x):
        leaked.append(x * 2)  # here it gets out
        return x

    return leaked, lambda *args: transformed(f)(*args)


@pytest.mark.parametrize(
    ("transformation", "argument", "origin"),
    [
        (weft.jit, 1.0, "a value inside f, jit at"),
        (weft.grad, 1.0, "jvp(f), called at"),
        (weft.vmap, np.ones(2), "vmap(f), called at"),
    ],
)
def test_leaked_tracer_says_where_it_is_from(transformation, argument, origin: str) -> None:
    leaked, run = leak(transformation)
    run(argument)  # type: ignore[operator]
    with pytest.raises(errors.UnexpectedTracerError) as caught:
        leaked[0] + 1
    assert origin in str(caught.value) and names_this_file(caught.value)
    with pytest.raises(errors.UnexpectedTracerError):
        weft.jit(lambda y: y + leaked[0])(1.0)


def test_a_leak_from_jit_names_the_line_of_the_tracer() -> None:
    leaked, run = leak(weft.jit)
    run(1.0)  # type: ignore[operator]
    with pytest.raises(
        errors.UnexpectedTracerError, match=r"made at test_jit.py:\d+:  leaked.append\(x \* 2\)  # here it gets out"
    ):
        leaked[0] + 1


def test_check_tracer_leaks_finds_it_where_it_happens() -> None:
    _, run = leak(weft.jit)
    with (
        weft.check_tracer_leaks(True),
        pytest.raises(errors.UnexpectedTracerError, match="leaked from f, jit at") as caught,
    ):
        run(1.0)  # type: ignore[operator]
    assert "here it gets out" in str(caught.value) and names_this_file(caught.value)
    with weft.checking_leaks():
        assert float(weft.jit(lambda x: x * 2)(2.0)) == 4.0


# -- values that are not known ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda x: 1 if x > 0 else 2, errors.TracerBoolConversionError),
        (lambda x: int(x), errors.ConcretizationTypeError),
        (lambda x: float(x), errors.ConcretizationTypeError),
        (lambda x: x.item(), errors.ConcretizationTypeError),
        (lambda x: [1, 2][x], errors.TracerIntegerConversionError),
        (lambda x: range(x), errors.TracerIntegerConversionError),
        (lambda x: np.sin(x), errors.TracerArrayConversionError),
        (lambda x: wnp.zeros(x), errors.TracedShapeError),
    ],
)
def test_python_on_a_traced_value(function, error) -> None:
    with pytest.raises(error) as caught:
        weft.jit(function)(1)
    assert names_this_file(caught.value) and "<lambda>, jit at test_jit.py" in str(caught.value)


def test_truth_of_an_array_is_ambiguous_traced_or_not() -> None:
    with pytest.raises(ValueError, match="more than one element is ambiguous") as caught:
        weft.jit(lambda x: 1 if x > 0 else 2)(wnp.ones(3))
    assert names_this_file(caught.value)
    with pytest.raises(ValueError, match="no elements is ambiguous"):
        bool(wnp.ones(0))


# -- donation and dispatch ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [4, 64])  # arrays that share a chunk, and such that have a block each
def test_donated_arrays_are_gone_and_results_right(side: int) -> None:
    step = weft.jit(lambda p, x: ({k: a * 0.5 + x for k, a in p.items()}, x + 1), donate_argnums=0)
    state = {k: wnp.full((side, side), float(n)) for n, k in enumerate("abc")}
    expected = {k: np.asarray(a).copy() for k, a in state.items()}
    for _ in range(6):
        old, seen = state, np.asarray(state["b"])  # a view of one of them, which must not change
        before = seen.copy()
        state, _ = step(state, 1.0)
        expected = {k: a * np.float32(0.5) + np.float32(1) for k, a in expected.items()}
        for k in "abc":
            np.testing.assert_array_equal(np.asarray(state[k]), expected[k])
        np.testing.assert_array_equal(seen, before)
        for a in old.values():
            assert a.is_deleted()
            with pytest.raises(errors.DonatedArrayError):
                np.asarray(a)
        with pytest.raises(errors.DonatedArrayError):
            step(old, 1.0)


def test_unshared_memory_is_reused() -> None:
    step = weft.jit(lambda x: x * 0.5 + 1, donate_argnums=0)
    x = step(wnp.ones((64, 64)))
    address = x.unsafe_buffer_pointer()
    for _ in range(5):
        x = step(x)
        assert x.unsafe_buffer_pointer() == address  # the NumPy array that was made to ask is the array's own
    other = np.asarray(x)
    assert step(x).unsafe_buffer_pointer() != other.__array_interface__["data"][0]
    shared = copy.copy(step(wnp.ones((64, 64))))
    held = step(shared)
    np.testing.assert_array_equal(np.asarray(held), 1.75)


def test_one_array_twice_is_refused_when_donated() -> None:
    for side in (4, 64):
        add = weft.jit(lambda x, y: x + y, donate_argnums=0)
        for _ in range(4):
            x = wnp.ones((side, side))
            with pytest.raises(errors.DonatedArrayError, match="must not be another argument"):
                add(x, x)
            assert float(add(x, wnp.ones((side, side)))[0, 0]) == 2


def test_many_alternating_shapes_keep_their_dispatchers(monkeypatch: pytest.MonkeyPatch) -> None:
    jitted = weft.jit(lambda x, tree: {"sum": x.sum() + tree["a"][0], "x": x})
    calls = [(np.ones(n + 1, np.float32), {"a": [n * 1.0, wnp.zeros(n % 3)]}) for n in range(40)]
    for _ in range(3):
        for x, tree in calls:
            assert float(jitted(x, tree)["sum"]) == len(x) + tree["a"][0]
    monkeypatch.setattr(type(jitted), "_call", None)  # the general way
    for x, tree in calls:
        assert float(jitted(x, tree)["sum"]) == len(x) + tree["a"][0]


def test_scalars_and_arrays_of_one_type_share_a_dispatcher() -> None:
    jitted = weft.jit(lambda x: x * 2)
    for _ in range(4):
        for value in (3.0, wnp.asarray(3.0), np.float32(3)):
            assert float(jitted(value)) == 6.0
    jitted.clear_cache()
    assert float(jitted(4.0)) == 8.0


def test_hints_that_are_forgotten_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.api.dispatch_table.MOST_HINTS", 3)
    jitted = weft.jit(lambda x: x + 1)
    for _ in range(4):
        for n in range(1, 8):
            assert jitted(np.zeros(n, np.float32)).shape == (n,)
    assert len(jitted._table.by_hint) == 3


class Mode:
    """Static argument that is compared by its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mode) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


def test_dispatchers_of_functions_with_static_arguments() -> None:
    traced = []

    def f(x, kind, *rest, scale=1, mode=None, y=0.0):
        traced.append((kind, scale, getattr(mode, "name", None)))
        return x * len(repr(kind)) * scale + y + sum(rest), None if mode is None else mode.name == "a"

    jitted = weft.jit(f, static_argnums=1, static_argnames=("scale", "mode"), donate_argnums=0)
    calls = [
        ((1,), {}),
        ((True,), {}),
        ((1.0,), {}),
        (("one",), {"y": 2.0}),
        ((1, 5.0), {"scale": 3}),
        ((1, 5.0), {"scale": 3.0}),
        (((1, (2, "x")),), {"mode": Mode("a"), "y": 1.0}),
        (((1, (2, "x")),), {"mode": Mode("b"), "y": 1.0}),
        ((1,), {"mode": Mode("a"), "scale": 2}),
    ]
    for _ in range(5):
        for args, kwargs in calls:
            expected = f(np.ones(3, np.float32), *args, **kwargs)
            del traced[-1]
            fresh = {k: Mode(v.name) if isinstance(v, Mode) else v for k, v in kwargs.items()}
            found = jitted(wnp.ones(3), *args, **fresh)
            np.testing.assert_array_equal(found[0], expected[0])
            assert (found[1] is None) == (expected[1] is None) and found[1] == expected[1]
    assert len(traced) == len(calls)  # once each
    assert len([d for found in jitted._table.by_hint.values() for d in found]) == len(calls)
    with pytest.raises(weft.errors.UnhashableStaticArgumentError):
        jitted(wnp.ones(3), [1])
    with pytest.raises(TypeError):
        jitted(wnp.ones(3))


def test_static_arguments_said_by_positions_and_names_are_all() -> None:
    seen: list[bool] = []

    @functools.partial(weft.jit, static_argnums=(2,), static_argnames=("b",))
    def f(a: Any, b: Any, c: Any) -> Any:
        seen.append(isinstance(b, int))
        seen.append(isinstance(c, int))
        return a

    f(1.0, 2, 3)
    f(1.0, b=2, c=3)
    assert seen == [False, True, True, False]


@pytest.mark.parametrize("dtype", ["int64", "uint64", "float64", "complex128"])
def test_numpy_arrays_of_64_bits_are_dispatched(dtype: str) -> None:
    f = weft.jit(lambda x: x * 2)
    for value in (np.arange(5).astype(dtype), np.dtype(dtype).type(3)):
        for _ in range(3):
            result = f(value)
        assert f._table.recent[0]((value,), {}) is not MISS and result.dtype == weft.dtypes.canonicalize_dtype(dtype)
        np.testing.assert_array_equal(f._table.recent[0]((value,), {}), result)
    if dtype == "int64":  # what does not fit is what it is in other calls
        first = weft.jit(lambda x: x * 2)
        large = np.array([1, 2, 3, 4, 1 << 40])
        outcomes = []
        for function in (f, first):
            try:
                outcomes.append(np.asarray(function(large)).tolist())
            except Exception as error:
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    "setting",
    [{"num_threads": 1}, {"cpu_enable_async_dispatch": False}, {"profiling": True}, {"log_compiles": True}],
    ids=lambda setting: next(iter(setting)),
)
def test_calls_are_quick_after_a_setting_has_changed(setting: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    f = weft.jit(lambda x: x + 1)
    x = wnp.arange(3.0)

    def find_dispatcher() -> None:
        for _ in range(4):
            f(x)
        with monkeypatch.context() as patched:
            patched.setattr(type(f), "_call", lambda *_: pytest.fail("there is no dispatcher"))
            f(x)

    find_dispatcher()
    with overrides(**setting):
        find_dispatcher()
    find_dispatcher()

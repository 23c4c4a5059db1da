"""Primitives that programs define, rule tables, flat functions and traces, under the names of JAX."""

import functools

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax
from weft.api_util import argnums_partial, debug_info, flatten_fun, flatten_fun_nokwargs, safe_map
from weft.core import ShapedArray, Trace, Tracer, eval_jaxpr
from weft.errors import JaxprTypeError, MissingRuleError, NotSupportedError
from weft.extend import core, linear_util, source_info_util
from weft.extend.core import Primitive
from weft.interpreters import ad, batching, mlir, partial_eval
from weft.test_util import check_grads


def make_scaled_sine(name="scaled_sine"):
    """sin(x) * scale, with every rule, as a library for JAX would write it."""
    p = Primitive(name)
    computed = lambda x, *, scale: jnp.sin(x) * scale
    p.def_impl(computed)
    p.def_abstract_eval(lambda x, *, scale: ShapedArray(x.shape, x.dtype))
    mlir.register_lowering(p, mlir.lower_fun(computed, multiple_results=False))
    ad.defjvp(p, lambda t, x, *, scale: t * jnp.cos(x) * scale)
    batching.primitive_batchers[p] = lambda args, dims, **params: (p.bind(*args, **params), dims[0])
    return p


scaled_sine_p = make_scaled_sine()
scaled_sine = lambda x, scale=2.0: scaled_sine_p.bind(x, scale=scale)
x = jnp.linspace(-1.0, 1.0, 6, dtype=jnp.float32).reshape(2, 3)
expected = np.sin(np.asarray(x)) * 2


def test_a_primitive_runs_under_every_transformation():
    jitted = weft.jit(scaled_sine)
    for function in (scaled_sine, jitted, weft.vmap(scaled_sine), weft.vmap(jitted, 1, 1)):
        np.testing.assert_allclose(function(x), expected, rtol=1e-6)
    total = lambda v: scaled_sine(v).sum()
    for gradient in (weft.grad(total), weft.jit(weft.grad(total)), weft.vmap(weft.grad(total)), weft.jacfwd(total)):
        np.testing.assert_allclose(gradient(x), 2 * np.cos(x), rtol=1e-6)
    check_grads(scaled_sine, (x,), order=2)
    carry, _ = lax.scan(lambda c, v: (c + scaled_sine(v), c), jnp.zeros(3), x)
    np.testing.assert_allclose(carry, expected.sum(0), rtol=1e-6)
    looped = weft.grad(lambda v: lax.scan(lambda c, row: (c * scaled_sine(row), None), jnp.ones(3), v)[0].sum())(x)
    plain = weft.grad(lambda v: (2 * jnp.sin(v)).prod(0).sum())(x)
    np.testing.assert_allclose(looped, plain, rtol=1e-5)


def test_a_primitive_prints_and_is_one_equation():
    jaxpr = weft.make_jaxpr(scaled_sine)(x)
    assert [e.primitive for e in jaxpr.eqns] == [scaled_sine_p]
    assert "scaled_sine[scale=2.0]" in str(jaxpr)
    core.check_jaxpr(jaxpr)
    np.testing.assert_allclose(eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, x)[0], expected, rtol=1e-6)
    np.testing.assert_allclose(core.jaxpr_as_fun(jaxpr)(x)[0], expected, rtol=1e-6)


def test_primitives_of_one_name_are_different_and_not_stored_on_disk():
    p, q = Primitive("same_name"), Primitive("same_name")
    for primitive, factor in ((p, 2.0), (q, 3.0)):
        primitive.def_abstract_eval(lambda x: x)
        mlir.register_lowering(primitive, mlir.lower_fun(lambda x, f=factor: x * f, multiple_results=False))
    ones = jnp.ones(5)
    assert weft.jit(p.bind)(ones).sum() == 10 and weft.jit(q.bind)(ones).sum() == 15
    assert p.bind(ones).sum() == 10  # without impl the lowering runs


def test_without_a_lowering_compiled_code_calls_impl():
    seen = []
    p = Primitive("looked_at")
    p.def_abstract_eval(lambda x: x)

    @p.def_impl
    def impl(x):
        seen.append(float(x))
        return x + 1

    assert weft.jit(lambda x: p.bind(x) * 2)(3.0) == 8.0 and seen == [3.0]


def test_many_results_and_symbolic_zeros():
    p = Primitive("sum_and_product")
    p.multiple_results = True
    computed = lambda a, b: [a + b, a * b]
    p.def_impl(computed)
    p.def_abstract_eval(lambda a, b: [a, b])
    mlir.register_lowering(p, mlir.lower_fun(computed))
    kinds = []

    def jvp(primals, tangents):
        (a, b), (ta, tb) = primals, tangents
        kinds.append([type(t) is ad.Zero for t in tangents])
        ta, tb = ad.instantiate_zeros(ta), ad.instantiate_zeros(tb)
        return p.bind(a, b), [ta + tb, ta * b + a * tb]

    ad.primitive_jvps[p] = jvp
    batching.axis_primitive_batchers[p] = lambda size, name, kind, args, dims: (
        p.bind(*(batching.bdim_at_front(a, d, size) for a, d in zip(args, dims, strict=True))),
        (0, 0),
    )
    f = lambda a, b: p.bind(a, b)[1]
    assert weft.grad(f)(2.0, 5.0) == 5.0 and kinds[-1] == [False, True]
    np.testing.assert_allclose(weft.jit(weft.vmap(weft.grad(f, argnums=1), (0, None)))(x[0], 2.0), x[0])


def test_parameters_may_have_any_name():
    words = dict(axis=1, args=2, dims=3, primals=4, tangents=5, cotangent=6, types=7, params=8, out=9, t=10, x=11)
    p = Primitive("named")
    computed = lambda a, **params: a * params["axis"]
    p.def_impl(computed)
    p.def_abstract_eval(lambda a, **params: a)
    mlir.register_lowering(p, mlir.lower_fun(computed, multiple_results=False))
    ad.deflinear2(p, lambda ct, a, **params: [p.bind(ct, **params)])
    f = lambda v: p.bind(v, **words).sum()
    for define in (batching.defvectorized, batching.defbroadcasting):
        define(p)
        np.testing.assert_array_equal(weft.jit(weft.vmap(weft.grad(f)))(x), np.ones((2, 3)))
    batching.axis_primitive_batchers[p] = lambda s, n, k, a, d, **params: (p.bind(*a, **params), d[0])
    np.testing.assert_array_equal(weft.vmap(weft.grad(f))(x), np.ones((2, 3)))
    ad.defjvp(p, lambda tangent, a, **params: p.bind(tangent, **params))
    np.testing.assert_array_equal(weft.jacfwd(f)(x), np.ones((2, 3)))


def test_linear_primitives_are_transposed():
    p = Primitive("reversed")
    computed = lambda a: a[::-1]
    p.def_impl(computed)
    p.def_abstract_eval(lambda a: a)
    mlir.register_lowering(p, mlir.lower_fun(computed, multiple_results=False))
    ad.deflinear2(p, lambda ct, a: [p.bind(ct)] if ad.is_undefined_primal(a) else [None])
    f = lambda a: (p.bind(a) * jnp.arange(3.0)).sum()
    np.testing.assert_allclose(weft.jit(weft.grad(f))(jnp.ones(3)), [2, 1, 0])
    (transposed,) = weft.linear_transpose(p.bind, jnp.ones(3))(jnp.arange(3.0))
    np.testing.assert_allclose(transposed, [2, 1, 0])


def test_bilinear_primitives():
    p = Primitive("outer")
    computed = lambda a, b: a[:, None] * b[None, :]
    p.def_impl(computed)
    p.def_abstract_eval(lambda a, b: ShapedArray((*a.shape, *b.shape), a.dtype))
    mlir.register_lowering(p, mlir.lower_fun(computed, multiple_results=False))
    ad.defbilinear(p, lambda ct, a, b: ct @ b, lambda ct, a, b: a @ ct)
    a, b = jnp.arange(3.0), jnp.arange(2.0) + 1
    check_grads(p.bind, (a, b), order=2)


@pytest.mark.parametrize("define", [batching.defvectorized, batching.defbroadcasting])
def test_batching_rules(define):
    p = make_scaled_sine("elementwise")
    define(p)
    np.testing.assert_allclose(weft.vmap(lambda v: p.bind(v, scale=2.0), 1, 1)(x), expected, rtol=1e-6)


def test_broadcasting_and_reducing_batching_rules():
    p = Primitive("plus")
    p.def_impl(jnp.add)
    p.def_abstract_eval(lambda a, b: a if a.ndim else b)
    batching.defbroadcasting(p)
    np.testing.assert_allclose(weft.vmap(p.bind, (0, None))(x, x[0]), x + x[0])
    np.testing.assert_allclose(weft.vmap(p.bind, (0, 0))(x, x[:, 0]), x + x[:, :1])
    q = Primitive("total")
    q.def_impl(lambda a, *, axes: jnp.sum(a, axes))
    q.def_abstract_eval(lambda a, *, axes: ShapedArray(np.delete(a.shape, axes), a.dtype))
    batching.defreducer(q)
    cube = jnp.arange(24.0).reshape(2, 3, 4)
    mapped = weft.vmap(lambda a: q.bind(a, axes=(1,)), in_axes=1, out_axes=0)(cube)
    np.testing.assert_allclose(mapped, np.asarray(cube).transpose(1, 0, 2).sum(2))


def test_missing_rules_say_which():
    p = Primitive("unfinished")
    with pytest.raises(NotImplementedError, match="Evaluation rule for 'unfinished'"):
        p.bind(1.0)
    with pytest.raises(MissingRuleError, match="Abstract evaluation for 'unfinished'"):
        weft.jit(p.bind)(1.0)
    p.def_impl(lambda x: x)
    p.def_abstract_eval(lambda x: x)
    with pytest.raises(NotImplementedError, match="Differentiation rule for 'unfinished'"):
        weft.grad(p.bind)(1.0)
    with pytest.raises(NotImplementedError, match="Batching rule for 'unfinished'"):
        weft.vmap(p.bind)(x)
    ad.primitive_jvps[p] = lambda primals, tangents: (p.bind(*primals), p.bind(*tangents))
    with pytest.raises(NotImplementedError, match="Transpose rule"):
        weft.grad(p.bind)(1.0)
    with pytest.raises(NotSupportedError, match="belongs to this process"):
        __import__("pickle").dumps(p)


def test_effects_keep_an_equation():
    class Noted(core.Effect):
        pass

    p = Primitive("noted")
    p.def_impl(lambda x: x)
    p.def_effectful_abstract_eval(lambda x: (x, {Noted()}))

    def f(x):
        p.bind(x)
        return x

    jaxpr = weft.make_jaxpr(f)(1.0)
    assert [e.primitive.name for e in partial_eval.dce_jaxpr(jaxpr, True)[0].eqns] == ["noted"]
    assert isinstance(next(iter(jaxpr.effects)), Noted)


def test_tables_hold_the_rules_of_built_in_primitives():
    sine = weft.make_jaxpr(jnp.sin)(1.0).eqns[0].primitive
    assert isinstance(sine, Primitive) and sine in ad.primitive_jvps and len(ad.primitive_jvps) > 100
    out, tangent = ad.primitive_jvps[sine]([jnp.float32(1.0)], [jnp.float32(1.0)])
    np.testing.assert_allclose([out, tangent], [np.sin(1), np.cos(1)], rtol=1e-6)
    out, dim = batching.primitive_batchers[sine]([x], [1])
    assert dim == 1 and out.shape == x.shape
    with pytest.raises(KeyError):
        ad.primitive_jvps[Primitive("new")]
    loop = weft.make_jaxpr(lambda v: lax.scan(lambda c, r: (c, r), 0.0, v))(x).eqns[0].primitive
    with pytest.raises(NotSupportedError, match="carries jaxprs"):
        ad.primitive_jvps[loop] = None


def test_types_by_their_name_in_jax():
    aval = ShapedArray([2, 3], "float32")
    assert (str(aval), repr(aval), aval.str_short(True)) == ("float32[2,3]", "ShapedArray(float32[2,3])", "f32[2,3]")
    assert (str(weft.typeof(1)), repr(weft.typeof(1))) == ("~int32[]", "ShapedArray(int32[], weak_type=True)")
    assert aval is weft.typeof(x) and isinstance(aval, ShapedArray) and aval.shape == (2, 3)
    assert core.mapped_aval(2, 0, aval) == weft.typeof(x[0])
    assert core.unmapped_aval(7, 1, aval).shape == (2, 7, 3)
    assert weft.eval_shape(scaled_sine, aval).shape == (2, 3)
    assert core.primal_dtype_to_tangent_dtype(np.int32) == weft.float0


def test_jaxprs_are_taken_apart_and_built():
    closed = weft.make_jaxpr(lambda v: v + x)(x)
    assert isinstance(closed, core.ClosedJaxpr) and len(closed.consts) == 1
    other = core.ClosedJaxpr(closed.jaxpr, [x * 2])
    np.testing.assert_allclose(core.jaxpr_as_fun(other)(x)[0], x * 3)
    np.testing.assert_allclose(eval_jaxpr(closed.jaxpr, [x * 4], x)[0], x * 5)
    new = core.gensym()
    a, b = new(weft.typeof(x)), new(weft.typeof(x))
    equation = core.new_jaxpr_eqn([a], [b], scaled_sine_p, {"scale": 2.0}, core.no_effects)
    built = core.Jaxpr((), [a], [b], [equation])
    core.check_jaxpr(built)
    np.testing.assert_allclose(weft.jit(core.jaxpr_as_fun(built))(x)[0], expected, rtol=1e-6)
    wrong = core.Jaxpr((), [a], [b], [])
    with pytest.raises(JaxprTypeError):
        core.check_jaxpr(wrong)
    nested = weft.make_jaxpr(weft.jit(lambda v: v * 2))(x)
    assert [len(j.eqns) for j in core.subjaxprs(nested)] == [1]


def test_an_interpreter_of_a_library():
    """A trace that counts operations, as `haiku.experimental.to_dot` is written."""
    names = []

    class CountingTracer(Tracer):
        def __init__(self, trace, val):
            super().__init__(trace, weft.typeof(val))
            self.val = val

    class CountingTrace(Trace):
        def __init__(self, parent_trace, tag):
            super().__init__()
            self.parent_trace, self.tag = parent_trace, tag

        def process_primitive(self, primitive, tracers, params):
            names.append(primitive.name)
            values = [t.val if isinstance(t, CountingTracer) else t for t in tracers]
            out = primitive.bind_with_trace(self.parent_trace, values, [weft.typeof(v) for v in values], params)
            return weft.tree.map(lambda v: CountingTracer(self, v), out)

    @linear_util.transformation
    def counted(tag, *values):
        with core.take_current_trace() as parent:
            trace = CountingTrace(parent, tag)
            with core.set_current_trace(trace):
                outs = yield [CountingTracer(trace, v) for v in values], {}
                yield [t.val for t in outs]

    leaves, in_tree = weft.tree.flatten(((x,), {}))
    flat, out_tree = flatten_fun(linear_util.wrap_init(lambda v: {"y": jnp.sin(v) * 2}), in_tree)
    results = counted(flat, core.TraceTag()).call_wrapped(*leaves)
    out = weft.tree.unflatten(out_tree(), results)
    np.testing.assert_allclose(out["y"], expected, rtol=1e-6)
    assert names == ["sin", "mul"] and core.find_top_trace(()) is not None


def test_known_values_are_computed_and_unknown_ones_recorded():
    """As flax's `nn.scan` and lazy initialisation use it."""
    ran = []

    def body(known, unknown):
        ran.append(float(jnp.sum(known * 2)))  # it has its value
        return known * 2, weft.jit(lambda a, b: (a + 1, a * b))(known, unknown)

    in_tree = weft.tree.structure((x, x))
    flat, out_tree = flatten_fun_nokwargs(linear_util.wrap_init(body), in_tree)
    pvals = [partial_eval.PartialVal.known(x), partial_eval.PartialVal.unknown(weft.typeof(x))]
    jaxpr, out, consts = partial_eval.trace_to_jaxpr_nounits(flat, pvals)
    assert [p.is_known() for p in out] == [True, True, False] and len(ran) == 1
    np.testing.assert_allclose(out[0].get_known(), x * 2)
    np.testing.assert_allclose(out[1][1], x + 1)
    np.testing.assert_allclose(eval_jaxpr(jaxpr, consts, x * 3)[0], x * x * 3, rtol=1e-6)
    assert out[2].get_aval() == weft.typeof(x) and out_tree().num_leaves == 3
    flat, _ = flatten_fun_nokwargs(linear_util.wrap_init(lambda a: a), weft.tree.structure((x,)))
    _, out, _ = partial_eval.trace_to_jaxpr_nounits(flat, pvals[:1], instantiate=True)
    assert not out[0].is_known()
    recorded = linear_util.wrap_init(lambda a: [a * x])
    jaxpr, types, consts = partial_eval.trace_to_jaxpr_dynamic(recorded, [weft.typeof(x)])
    assert types == [weft.typeof(x)] and len(consts) == 1
    smaller, used = partial_eval.dce_jaxpr(weft.make_jaxpr(lambda a, b: (a * 2, b))(1.0, 2.0), [False, True])
    assert used == [False, True] and not smaller.eqns


def test_functions_with_transformations():
    @linear_util.transformation_with_aux
    def doubled(factor, *args):
        out = yield [a * factor for a in args], {}
        yield out, "side"

    calls = []

    def plain(a, b):
        calls.append(1)
        return a + b

    fun, aux = doubled(linear_util.wrap_init(plain), 2)
    with pytest.raises(linear_util.StoreException):
        aux()
    assert fun.call_wrapped(1, 2) == 6 and aux() == "side"
    assert linear_util.merge_linear_aux(aux, lambda: None) == (True, "side")
    cached = linear_util.cache(lambda fun, value: fun.call_wrapped(value, value))
    for _ in range(2):
        fun, aux = doubled(linear_util.wrap_init(plain), 2)
        assert cached(fun, 3) == 12 and aux() == "side"
    assert len(calls) == 2
    partial, dynamic = argnums_partial(linear_util.wrap_init(lambda a, b, c: (a, b, c)), (2, 0), (1, "b", 3))
    assert dynamic == (1, 3) and partial.call_wrapped(*dynamic) == (1, "b", 3)
    with pytest.raises(ValueError, match="must be hashable"):
        argnums_partial(linear_util.wrap_init(plain), 0, (1, [2]))


def test_names_of_arguments():
    info = debug_info("jit", lambda a, b: None, (1, {"k": 2}), {})
    assert info.arg_names == ("a", "b['k']") and info.func_name == "<lambda>"
    assert safe_map(lambda a, b: a + b, [1, 2], (3, 4)) == [4, 6]
    with pytest.raises(ValueError, match="different lengths"):
        safe_map(lambda a, b: a, [1], [1, 2])
    structure = weft.tree.structure(((1, (2, 3)), {"k": 4}))
    assert weft.api_util.donation_vector((1,), ("k",), structure) == (False, True, True, True)
    assert weft.api_util.rebase_donate_argnums((2,), (0, 3)) == (1,)
    assert weft.api_util.flatten_axes("axes", weft.tree.structure((1, (2, 3))), (0, None)) == [0, None, None]


def test_names_of_scopes_and_lines():
    with source_info_util.extend_name_stack("outer"):
        jaxpr = weft.make_jaxpr(lambda v: v * 2)(1.0)
        info = source_info_util.current()
        with source_info_util.reset_name_stack():
            assert len(source_info_util.current_name_stack()) == 0
    assert "outer" in jaxpr.eqns[0].stack and str(info.name_stack) == "outer"
    assert "test_extend.py" in source_info_util.summarize(info)
    source_info_util.register_exclusion("/somewhere/else")
    other = weft.make_jaxpr(lambda v: v * 2)(1.0).eqns[0].source
    with source_info_util.user_context(other):
        assert weft.make_jaxpr(lambda v: v)(1.0) is not None


def test_where_operations_go():
    found = []
    looked = lambda v: found.append(
        (core.unsafe_am_i_under_a_jit_DO_NOT_USE(), core.unsafe_am_i_under_a_vmap_DO_NOT_USE())
    )
    looked(1.0), weft.vmap(lambda v: (looked(v), v)[1])(x), weft.jit(lambda v: (looked(v), v)[1])(x)
    assert found == [(False, False), (False, True), (True, False)]
    weft.vmap(lambda v: (found.append(core.unsafe_get_axis_names_DO_NOT_USE()), v)[1], axis_name="i")(x)
    assert found[-1] == ["i"] and not core.nonempty_axis_env_DO_NOT_USE()
    assert core.valid_jaxtype(1.0) and core.valid_jaxtype(x) and not core.valid_jaxtype("text")
    with pytest.raises(weft.errors.ConcretizationTypeError, match="a size"):
        weft.jit(functools.partial(core.concrete_or_error, int, context="a size"))(1)


def test_backends_and_generators():
    backend = weft.extend.backend
    assert backend.get_backend().platform == "cpu" and "cpu" in backend.backends()
    assert backend.get_default_device() == weft.devices()[0]
    generators = weft.extend.random
    key = generators.seed_with_impl(generators.threefry_prng_impl, 7)
    assert key == weft.random.key(7)
    words = generators.threefry_2x32((jnp.uint32(1), jnp.uint32(2)), jnp.arange(5, dtype=jnp.uint32))
    assert words.shape == (5,) and words.dtype == jnp.uint32


def test_objects_of_other_libraries_enter_programs():
    class Wrapped:
        def __init__(self, value):
            self.value = value
            self.shape, self.dtype = value.shape, value.dtype

        def __array__(self, dtype=None, copy=None):
            return np.asarray(self.value, dtype)

    weft.core.pytype_aval_mappings[Wrapped] = weft.core.pytype_aval_mappings[np.ndarray]
    try:
        weft.core.pytype_aval_mappings[Wrapped] = lambda w: ShapedArray(w.shape, w.dtype)
        np.testing.assert_allclose(weft.jit(lambda a: a * 2)(Wrapped(np.ones(3, np.float32))), 2 * np.ones(3))
    finally:
        del weft.core.pytype_aval_mappings[Wrapped]

"""Operations of `experimental.hijax`, and what equations say as JAX's do."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import errors, lax
from weft.experimental import EArray, cur_qdd, hijax


class Scale(hijax.HiPrimitive):
    """Linear operation with all rules; its derivative is ten times too large, so that a test can tell which rule was
    used."""

    def abstract_eval(self, x, *, by):
        return x, set()

    def to_lojax(self, x, *, by):
        return x * by

    def jvp(self, primals, tangents, *, by):
        return self.bind(*primals, by=by), self.bind(hijax.instantiate_zeros(tangents[0]), by=10 * by)

    def transpose(self, cotangent, x, *, by):
        return [self.bind(cotangent, by=by)]


class Both(hijax.HiPrimitive):
    multiple_results = True

    def abstract_eval(self, x):
        return [x, x], set()

    def to_lojax(self, x):
        return [wnp.sin(x), wnp.cos(x)]


def test_operations_with_rules_as_methods() -> None:
    scale, x = Scale("scale"), wnp.arange(3.0)
    function = lambda x: scale.bind(x, by=3.0)
    assert [str(e.primitive) for e in weft.make_jaxpr(function)(x).eqns] == ["scale"]
    for transform in (lambda f: f, weft.jit, weft.vmap, lambda f: weft.jit(weft.vmap(f))):
        np.testing.assert_array_equal(transform(function)(x), x * 3)
    for transform in (weft.grad, lambda f: weft.jit(weft.grad(f))):
        assert float(transform(function)(2.0)) == 30.0
    carry, _ = lax.scan(lambda c, _: (function(c), None), 1.0, None, length=3)
    assert float(carry) == 27.0
    both = Both("both")
    first, _ = weft.jit(both.bind)(x)
    np.testing.assert_allclose(first, np.sin(x), rtol=1e-6)
    np.testing.assert_allclose(weft.vmap(both.bind)(x)[1], np.cos(x), rtol=1e-6)
    with pytest.raises(NotImplementedError, match="both"):
        weft.grad(lambda x: both.bind(x)[0])(1.0)
    with pytest.raises(NotImplementedError, match="abstract_eval"):
        weft.jit(hijax.HiPrimitive("nothing").bind)(1.0)


def test_effects_and_zeros() -> None:
    class Effect:
        pass

    allowed = hijax.control_flow_allowed_effects
    allowed.add_type(Effect)
    assert allowed.contains(Effect()) and not allowed.contains(1)
    assert len(allowed.filter_in([Effect(), 1])) == len(allowed.filter_not_in([Effect(), 1])) == 1
    allowed.remove_type(Effect)
    zero = weft.custom_derivatives.SymbolicZero.from_primal_value(wnp.ones(2))
    np.testing.assert_array_equal(hijax.instantiate_zeros(zero), [0, 0])
    assert hijax.instantiate_zeros(1.0) == 1.0


def test_arrays_of_extended_dtypes() -> None:
    key = weft.random.key(3)
    assert isinstance(key, EArray) and not isinstance(wnp.ones(2), EArray)
    again = EArray(weft.typeof(key), weft.random.key_data(key))
    assert bool(again == key)
    with pytest.raises(TypeError, match="random keys"):
        EArray(weft.typeof(wnp.ones(2)), wnp.ones(2))


def test_contents_of_mutable_values() -> None:
    class Box:
        def cur_qdd(self):
            return "known"

    assert cur_qdd(Box()) == "known"
    with pytest.raises(errors.ArgumentTypeError, match="cur_qdd"):
        cur_qdd(wnp.ones(2))


def test_equations_as_jax_has_them() -> None:
    def function(x):
        with weft.named_scope("inner"):
            return wnp.tanh(x + wnp.ones(3))

    closed = weft.make_jaxpr(function)(wnp.ones(3))
    values = dict(zip(closed.jaxpr.invars, [wnp.ones(3)], strict=True))
    values.update(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    for equation in closed.jaxpr.eqns:  # the loop of an interpreter
        functions, params = equation.primitive.get_bind_params(equation.params)
        operands = [v.val if hasattr(v, "val") else values[v] for v in equation.invars]
        assert str(equation.source_info.name_stack) == "inner"
        assert "test_hijax.py" in str(equation.source_info.traceback)
        with equation.ctx.manager:
            found = equation.primitive.bind(*functions, *operands, **params)
        values.update(zip(equation.outvars, found if equation.primitive.multiple_results else [found], strict=True))
    np.testing.assert_allclose(values[closed.jaxpr.outvars[0]], np.tanh(2), rtol=1e-6)
    assert equation.ctx.cur_abstract_mesh.empty and equation.ctx.compute_type is None
    parts = {name: getattr(closed, name) for name in ("constvars", "invars", "outvars", "eqns")}
    info = weft.api_util.debug_info("jit", function, (1.0,), {})
    rebuilt = type(closed.jaxpr)(**parts, effects=closed.effects, debug_info=info).replace(consts=closed.consts)
    assert str(rebuilt) == str(closed) and rebuilt.name == "function"

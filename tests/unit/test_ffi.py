"""Functions in C called from programs: of a compiled library, where there is a C compiler, and of ctypes."""

import ctypes
import pathlib
import shutil
import subprocess

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import ffi
from weft.errors import JaxRuntimeError, MissingRuleError
from weft.extend.core import Primitive
from weft.interpreters import mlir
from weft.primitives.control.foreign import Function

SOURCE = """
#include "weft_ffi.h"
#include <stdio.h>
int32_t scaled(const weft_ffi_call *call) {
  const weft_ffi_attribute *factor = weft_ffi_find(call, "factor");
  if (!factor || factor->dtype != WEFT_FFI_FLOAT64 || call->args[0].dtype != WEFT_FFI_FLOAT32) {
    snprintf(call->message, call->message_size, "factor must be a float, and x float32");
    return 1;
  }
  const float *x = call->args[0].data;
  float *y = call->results[0].data;
  for (int64_t i = 0; i < weft_ffi_count(&call->args[0]); i++) y[i] = x[i] * (float)*(const double *)factor->data;
  return 0;
}
"""
calls = []


@Function
def python_scaled(call):
    """Scale in Python, which has C's calling convention too."""
    call = call.contents
    calls.append(call.args[0].rank)
    attributes = {call.attributes[i].name: call.attributes[i] for i in range(call.attribute_count)}
    factor = attributes.get(b"factor")
    if factor is None or factor.dtype != 13 or call.args[0].dtype != 12:
        said = b"factor must be a float, and x float32"
        ctypes.memmove(call.message, said, len(said))
        return 1
    count = int(np.prod([call.args[0].shape[i] for i in range(call.args[0].rank)]))
    x, y = ((ctypes.c_float * count).from_address(b.data) for b in (call.args[0], call.results[0]))
    scale = ctypes.c_double.from_address(factor.data).value
    for i in range(count):
        y[i] = x[i] * scale
    return 0


def compiled_library(folder):
    source = folder / "scaled.c"
    source.write_text(SOURCE)
    command = ["cc", "-shared", "-fPIC", "-O1", "-I", ffi.include_dir(), "-o", str(folder / "scaled.so"), str(source)]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(folder / "scaled.so"))


REGISTERED = set()  # names that have their function, which they keep when tests of another parameter come between


@pytest.fixture(scope="module", params=["c", "python"])
def scaled(request, tmp_path_factory):
    name = f"scaled_{request.param}"
    if request.param == "c" and shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    if name not in REGISTERED:
        c = request.param == "c"
        function = ffi.pycapsule(compiled_library(tmp_path_factory.mktemp("ffi")).scaled) if c else python_scaled
        ffi.register_ffi_target(name, function)
        REGISTERED.add(name)
    return name


def call_of(name, x, **options):
    return ffi.ffi_call(name, weft.ShapeDtypeStruct(x.shape, x.dtype), **options)


x = jnp.arange(6.0, dtype=jnp.float32).reshape(2, 3)


def test_a_function_is_called_eagerly_and_compiled(scaled):
    np.testing.assert_array_equal(call_of(scaled, x)(x, factor=2.0), 2 * np.asarray(x))
    f = weft.jit(lambda v: call_of(scaled, v)(v + 1, factor=3.0) * 2)
    np.testing.assert_array_equal(f(x), (np.asarray(x) + 1) * 6)
    assert "ffi_call" in str(weft.make_jaxpr(f)(x))


@pytest.mark.parametrize("method", ["sequential", "expand_dims", "broadcast_all"])
def test_batches(scaled, method):
    f = lambda v: call_of(scaled, v, vmap_method=method)(v, factor=2.0)
    np.testing.assert_array_equal(weft.vmap(f)(x), 2 * np.asarray(x))
    np.testing.assert_array_equal(weft.jit(weft.vmap(f, in_axes=1, out_axes=1))(x), 2 * np.asarray(x))


def test_what_has_no_rule_says_so(scaled):
    with pytest.raises(MissingRuleError, match="vmap_method"):
        weft.vmap(lambda v: call_of(scaled, v)(v, factor=2.0))(x)
    with pytest.raises(MissingRuleError, match="custom_vjp"):
        weft.grad(lambda v: call_of(scaled, v)(v, factor=2.0).sum())(x)

    @weft.custom_vjp
    def f(v):
        return call_of(scaled, v)(v, factor=2.0)

    f.defvjp(lambda v: (f(v), None), lambda _, ct: (call_of(scaled, ct)(ct, factor=2.0),))
    np.testing.assert_array_equal(weft.jit(weft.grad(lambda v: f(v).sum()))(x), np.full((2, 3), 2.0))


def test_errors_of_a_function_are_raised(scaled):
    with pytest.raises(JaxRuntimeError, match="factor must be a float"):
        call_of(scaled, x)(x, factor=2)
    with pytest.raises(JaxRuntimeError, match="factor must be a float"):
        weft.jit(lambda v: call_of(scaled, v)(v))(x)


def test_side_effects_keep_a_call():
    ffi.register_ffi_target("noted", python_scaled)

    def f(v, effect):
        call_of("noted", v, has_side_effect=effect)(v, factor=1.0)
        return v

    before = len(calls)
    weft.jit(f, static_argnums=1)(x, False)
    assert len(calls) == before
    weft.jit(f, static_argnums=1)(x, True)
    assert len(calls) == before + 1


def test_lanes_that_do_not_take_a_branch_do_not_call():
    ffi.register_ffi_target("lanes", python_scaled)
    call = lambda v: call_of("lanes", v, has_side_effect=True, vmap_method="sequential")(v, factor=2.0)
    before = len(calls)
    out = weft.vmap(lambda v: weft.lax.cond(v[0] > 1, call, lambda v: v, v))(x)
    np.testing.assert_array_equal(out, [[0, 1, 2], [6, 8, 10]])
    assert len(calls) == before + 1


def test_layouts_and_aliases():
    @Function
    def seen(call):
        call = call.contents
        count = call.args[0].shape[0] * call.args[0].shape[1]
        a, b = ((ctypes.c_float * count).from_address(p.data) for p in (call.args[0], call.results[0]))
        same.append(call.args[0].data == call.results[0].data)
        for i in range(count):
            b[i] = a[i] * 10 + i
        return 0

    same = []
    ffi.register_ffi_target("seen", seen)
    by_columns = call_of("seen", x, input_layouts=[(1, 0)], output_layouts=(1, 0))(x)
    expected = np.asarray(x) * 10 + np.arange(6).reshape(3, 2).T
    np.testing.assert_array_equal(by_columns, expected)
    f = lambda v: call_of("seen", v, input_layouts=[(1, 0)], output_layouts=(1, 0), vmap_method="sequential")(v)
    np.testing.assert_array_equal(weft.vmap(f)(x[None])[0], expected)
    source = x + 0
    out = call_of("seen", x, input_output_aliases={0: 0})(source)
    np.testing.assert_array_equal(out, np.asarray(x) * 10 + np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(source, x)
    assert same == [False, False, True]


def test_attributes_of_all_kinds():
    found = {}

    @Function
    def noted(call):
        call = call.contents
        for i in range(call.attribute_count):
            a = call.attributes[i]
            found[a.name.decode()] = (a.dtype, a.count, ctypes.string_at(a.data, 1))
        return 0

    ffi.register_ffi_target("attributes", noted)
    ffi.ffi_call("attributes", ())(flag=True, n=7, text="abc", table=np.arange(3, dtype=np.int32))
    assert found == {"flag": (1, 1, b"\1"), "n": (5, 1, b"\7"), "text": (16, 3, b"a"), "table": (4, 3, b"\0")}
    with pytest.raises(TypeError, match="attribute f cannot be passed"):
        ffi.ffi_call("attributes", ())(f=len)


def test_a_primitive_is_lowered_to_a_function(scaled):
    p = Primitive("scaled")
    p.def_abstract_eval(lambda v, *, factor: v)
    mlir.register_lowering(p, ffi.ffi_lowering(scaled))
    np.testing.assert_array_equal(weft.jit(lambda v: p.bind(v, factor=4.0))(x), 4 * np.asarray(x))
    np.testing.assert_array_equal(p.bind(x, factor=4.0), 4 * np.asarray(x))


def test_mistakes():
    assert (pathlib.Path(ffi.include_dir()) / "weft_ffi.h").is_file()
    with pytest.raises(ValueError, match="no function named 'nothing'"):
        call_of("nothing", x)(x)
    ffi.register_ffi_target("once", python_scaled)
    ffi.register_ffi_target("once", python_scaled)
    with pytest.raises(ValueError, match="another function"):
        ffi.register_ffi_target("once", Function(lambda call: 0))
    with pytest.raises(TypeError, match="address of a function"):
        ffi.register_ffi_target("text", "text")
    with pytest.raises(ValueError, match="must name each dimension once"):
        call_of("once", x, input_layouts=[(0, 0)])(x)
    with pytest.raises(ValueError, match="of one type"):
        call_of("once", x, input_output_aliases={0: 3})(x)
    with pytest.raises(TypeError, match="arrays of numbers"):
        ffi.ffi_call("once", weft.ShapeDtypeStruct((), weft.random.key_dtype()))(weft.random.key(0))


def test_types_have_ids():
    first, second, again = ctypes.c_int64(0), ctypes.c_int64(0), ctypes.c_int64(0)
    ffi.register_ffi_type("counter", {"type_id": ffi.pycapsule(ctypes.addressof(first))})
    ffi.register_ffi_type("table", {"type_id": ctypes.addressof(second)}, platform="cuda")
    ffi.register_ffi_type_id("counter", ctypes.addressof(again))
    assert 0 != first.value == again.value != second.value != 0
    with pytest.raises(ValueError, match="another id"):
        ffi.register_ffi_type_id("counter", ctypes.addressof(second))
    with pytest.raises(ValueError, match="under 'type_id'"):
        ffi.register_ffi_type("other", {})
    with pytest.raises(TypeError, match="address of a 64-bit integer"):
        ffi.register_ffi_type_id("other", None)

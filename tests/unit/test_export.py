"""Exports: files that are read back, calls with concrete and symbolic sizes, derivatives, and malformed files."""

import json
import pathlib
import random
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import pytest

import weft
import weft.numpy as jnp
from weft import lax
from weft.errors import ArgumentError, FileFormatError, InvalidInputTypeError, NotSupportedError
from weft.export import (
    DisabledSafetyCheck,
    SymbolicScope,
    deserialize,
    export,
    is_symbolic_dim,
    register_namedtuple_serialization,
    register_pytree_node_serialization,
    symbolic_args_specs,
    symbolic_shape,
)
from weft.export.file import _digest
from weft.ir.at_sizes import JaxprAtSizes

ROOT = pathlib.Path(__file__).parents[2]
struct = weft.ShapeDtypeStruct


def network(params, x):
    """Everything that a small model has: products, loops, gathers, custom rules, constants, branches."""
    h = weft.nn.gelu(x @ params["w"] + params["b"])
    h, _ = lax.scan(lambda c, _: (jnp.tanh(c) * 0.5 + c, None), h, None, length=3)
    table = jnp.arange(20.0).reshape(10, 2)
    h = h + table[jnp.argmax(h, axis=-1)][:, :1]
    return {"logits": weft.nn.log_softmax(h), "count": jnp.sum(h > 0)}


def network_arguments(rows=4):
    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(size=(3, 5)).astype("f4"), "b": np.zeros(5, "f4")}
    return weights, rng.normal(size=(rows, 3)).astype("f4")


@pytest.fixture(scope="module")
def symbolic():
    params, x = network_arguments()
    specs = symbolic_args_specs((params, x), (None, "b, ..."))
    return export(weft.jit(network))(*specs)


def assert_close(first, second, rtol=2e-6):
    assert weft.tree.structure(first) == weft.tree.structure(second)
    for a, b in zip(weft.tree.leaves(first), weft.tree.leaves(second), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-6)


def test_one_file_for_all_sizes(symbolic):
    again = deserialize(symbolic.serialize(vjp_order=1))
    assert again.in_tree == symbolic.in_tree and str(again.out_avals) == str(symbolic.out_avals)
    assert again.fun_name == "network" and again.platforms == ("cpu", "cuda")
    for rows in (1, 2, 7):
        params, x = network_arguments(rows)
        for exported in (symbolic, again):
            assert_close(exported.call(params, x), network(params, x))
        loss = lambda p, f, x: (f(p, x)["logits"] ** 2).sum()
        assert_close(weft.grad(loss)(params, again.call, x), weft.grad(loss)(params, network, x), rtol=1e-4)
    assert bytes(again.serialize()) == bytes(symbolic.serialize())


def test_sizes_share_one_program():
    rows = symbolic_shape("b, 3")
    again = deserialize(export(weft.jit(lambda x: jnp.tanh(x).mean(0)))(struct(rows, np.float32)).serialize())
    for size in (4, 5, 6, 1):
        x = np.arange(3.0 * size, dtype=np.float32).reshape(size, 3)
        np.testing.assert_array_equal(again.call(x), weft.jit(lambda x: jnp.tanh(x).mean(0))(x))
    called = again._functions["all sizes"]
    is_instance = [isinstance(staged.jaxpr, JaxprAtSizes) for staged in called._cache._staged.values()]
    assert is_instance == [False, True, True, False]


def test_calls_under_transformations(symbolic):
    params, x = network_arguments(6)
    again = deserialize(symbolic.serialize(vjp_order=1))
    plain = network(params, x)["logits"]
    call = lambda v: again.call(params, v)["logits"]
    assert_close(weft.jit(call)(x), plain)
    mapped = weft.vmap(call)(x.reshape(2, 3, 3))
    assert_close(mapped.reshape(6, 5), plain)
    assert_close(weft.jit(weft.vmap(weft.grad(lambda v: call(v).sum())))(x.reshape(2, 3, 3)).shape, (2, 3, 3))
    outer = export(weft.jit(lambda v: call(v) * 2))(struct(symbolic_shape("n, 3"), np.float32))  # an export in another
    assert_close(deserialize(outer.serialize()).call(x), plain * 2)


def test_derivatives_to_the_order_of_the_file():
    cube = export(weft.jit(lambda x: x**3))(struct((), np.float32))
    second = deserialize(cube.serialize(vjp_order=2))
    assert weft.grad(weft.grad(second.call))(2.0) == 12.0 and weft.grad(cube.call)(2.0) == 12.0
    assert second.vjp().has_vjp() and not second.vjp().vjp().has_vjp()
    with pytest.raises(NotSupportedError, match="no derivative, or none of that order"):
        weft.grad(weft.grad(weft.grad(second.call)))(2.0)
    with pytest.raises(ValueError, match="has no derivative"):
        deserialize(cube.serialize()).vjp()


def test_custom_rules_are_those_of_the_derivative():
    @weft.custom_vjp
    def f(x):
        return jnp.sin(x)

    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * 100,))
    again = deserialize(export(weft.jit(f))(struct((), np.float32)).serialize(vjp_order=1))
    assert weft.grad(again.call)(1.0) == 100.0


def test_integers_have_empty_cotangents():
    f = weft.jit(lambda n, x: (x * n, n + 1))
    exported = export(f)(struct((), np.int32), struct((2,), np.float32))
    derivative = exported.vjp()
    assert [t.dtype for t in derivative.in_avals] == [np.int32, np.float32, np.float32, weft.float0]
    zero = np.zeros((), weft.float0)
    empty, ct = deserialize(derivative.serialize()).call(np.int32(3), np.ones(2, "f4"), np.ones(2, "f4"), zero)
    assert empty.dtype == weft.float0 and ct.tolist() == [3.0, 3.0]


def test_another_process_calls_it(symbolic, tmp_path):
    path = tmp_path / "network.weft"
    path.write_bytes(symbolic.serialize())
    params, x = network_arguments(5)
    np.savez(tmp_path / "in.npz", x=x, **params)
    code = f"""
import numpy as np
from weft.export import deserialize
given = np.load({str(tmp_path / "in.npz")!r})
out = deserialize(open({str(path)!r}, "rb").read()).call(dict(w=given["w"], b=given["b"]), given["x"])
np.save({str(tmp_path / "out.npy")!r}, np.asarray(out["logits"]))
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), network_bits(symbolic, params, x))


def network_bits(symbolic, params, x):
    return np.asarray(symbolic.call(params, x)["logits"])


@pytest.mark.parametrize(
    "wrong, what",
    [
        (lambda p, x: (p, x[:, :2]), "Shape mismatch for args\\[1\\]"),
        (lambda p, x: (p, x.astype(np.int32)), r"Dtype mismatch for args\[1\]"),
        (lambda p, x: (p, x[0]), r"Rank mismatch for args\[1\]"),
        (lambda p, x: ({**p, "b": p["b"][:2]}, x), r"Shape mismatch for args\[0\]\['b'\]"),
        (lambda p, x: ({"w": p["w"]}, x), "same pytree structure"),
    ],
)
def test_arguments_that_do_not_fit_are_named(symbolic, wrong, what):
    with pytest.raises(ArgumentError, match=what):
        symbolic.call(*wrong(*network_arguments()))


def test_sizes_are_solved_and_constraints_checked():
    scope = SymbolicScope(["b >= 4", "t <= 2*b"])
    shapes = symbolic_shape("2*b + 1, t", scope=scope), symbolic_shape("t, b*t", scope=scope)
    assert is_symbolic_dim(shapes[0][0]) and not is_symbolic_dim(3)
    f = export(weft.jit(lambda x, y: x.sum() + y.sum() + y.shape[1]))(*(struct(s, np.float32) for s in shapes))
    again = deserialize(f.serialize())
    assert again.call(np.ones((9, 3), "f4"), np.ones((3, 12), "f4")) == 27 + 36 + 12
    for sizes, what in (
        (((8, 3), (3, 12)), "Division had remainder 1 when computing the value of 'b'"),
        (((9, 3), (3, 13)), r"Found inconsistency between dimension size args\[1\]\.shape\[1\]"),
        (((7, 3), (3, 9)), "Expected 'b - 4' to be greater or equal to 0"),
        (((9, 9), (9, 36)), r"Expected '- t \+ 2\*b' to be greater or equal to 0"),
    ):
        with pytest.raises(ArgumentError, match=what):
            again.call(*(np.ones(s, "f4") for s in sizes))


def test_texts_of_jax_and_errors_of_syntax():
    (a, b, square, cut) = symbolic_shape("a, b, 2*a^2 + floordiv(b, 2), non_negative(a - 2)")
    assert (square, str(cut)) == (2 * a * a + b // 2, "max(a - 2, 0)")
    for text in (")(", "a a", "2.5", "a ^ a", "mod(a)", "floordiv(a, b, c)", "_", "...", "'a'"):
        with pytest.raises(ValueError, match="syntax error in symbolic shape"):
            symbolic_shape(text)
    a, b = symbolic_shape("a, b", constraints=["2*a >= 2*b + 3", "-2*a + 2*b >= -5", "a <= a + 1"])
    assert a - b >= 2 and a - b <= 2
    a, d = symbolic_shape("a, d", constraints=["floordiv(d, 2) == a + 5"])
    assert d // 2 == a + 5
    spec = symbolic_args_specs(np.ones((3, 4)), "n, _")
    assert spec.dtype == np.float32 and export(weft.jit(jnp.sin))(spec).call(np.ones((2, 4), "f4")).shape == (2, 4)


def test_functions_of_any_size():
    n, k = symbolic_shape("n, k")
    cases = [
        (weft.jacfwd(lambda x, y: jnp.outer(x, y), (0, 1)), (n,), (k,)),
        (weft.jacrev(lambda x: x.sum(0)), (n, k)),
        (weft.hessian(lambda x: (x**3).sum()), (n,)),
        (lambda x: jnp.polyval(jnp.arange(3.0), x), (n,)),
        (jnp.fft.fftshift, (n, k)),
        (lambda x, y: jnp.isin(x, y), (n,), (k,)),
        (lambda x, y: jnp.linalg.lstsq(x, y)[0], (n + 3, 3), (n + 3,)),
    ]
    for f, *shapes in cases:
        exported = export(weft.jit(f))(*(struct(shape, np.float32) for shape in shapes))
        for sizes in ({n: 1, k: 2}, {n: 4, k: 4}, {n: 3, k: 1}):
            at = lambda d, sizes=sizes: sizes.get(d, d if isinstance(d, int) else sizes[n] + 3)
            rng = np.random.default_rng(0)
            args = [rng.random([at(d) for d in shape], np.float32) for shape in shapes]
            assert_close(exported.call(*args), f(*map(jnp.asarray, args)), rtol=1e-4)
    with pytest.raises(ValueError, match="Cannot decide whether n is 1"):
        export(weft.jit(jnp.squeeze))(struct((n, 1), np.float32))


def test_gathers_of_a_size_that_may_be_zero():
    positions, wrong = lambda x: x[jnp.arange(x.shape[0])] * 2, lambda x: x[jnp.array([0])]
    filled = lambda x: x.at[jnp.array([0, 1])].get(mode="fill", fill_value=7.0)
    spec = struct(symbolic_shape("n - 1"), np.float32)
    for f in (positions, filled, lambda x: weft.grad(lambda y: (positions(y) + filled(y).sum()).sum())(x)):
        exported = export(weft.jit(f))(spec)
        for n in (0, 1, 3):
            x = np.arange(n, dtype="f4")
            np.testing.assert_array_equal(exported.call(x), f(jnp.asarray(x)))
    with pytest.raises(ValueError, match="Slice size at index 0 in gather op is out of range"):
        export(weft.jit(wrong))(spec).call(np.zeros(0, "f4"))


def test_symbolic_shapes_from_texts():
    assert symbolic_shape("3, 4") == (3, 4) and symbolic_shape(None, like=(2, 5)) == (2, 5)
    b, two, c = symbolic_shape("b, 2*b, _", like=(1, 2, 7))
    assert (str(b), str(two), c) == ("b", "2*b", 7) and two == 2 * b
    specs = symbolic_args_specs({"x": np.ones((2, 3)), "y": 1.0}, {"x": "b, ...", "y": None})
    assert str(specs["x"].shape) == "(b, 3)" and specs["y"].shape == ()
    with pytest.raises(ValueError, match="powers of at most"):
        symbolic_shape("b**100000")


def test_what_cannot_be_exported_names_the_line():
    def f(x):
        weft.debug.print("x = {}", x)
        return x

    with pytest.raises(NotSupportedError, match="calls a function of this process") as caught:
        export(weft.jit(f))(1.0)
    assert "weft.debug.print" in str(caught.value)
    with pytest.raises(ValueError, match="must be the result of `jit`"):
        export(len)


def test_settings_of_the_export_hold_in_calls():
    with weft.enable_x64(True):
        data = export(weft.jit(lambda x: x * 2))(struct((2,), np.float64)).serialize()
        x = jnp.ones(2, jnp.float64)
    out = deserialize(data).call(x)
    assert out.dtype == np.float64 and np.asarray(out).tolist() == [2.0, 2.0]


def test_keys_constants_and_dtypes():
    table = jnp.arange(6, dtype=jnp.bfloat16).reshape(2, 3)
    f = weft.jit(lambda key, x: weft.random.normal(key, (2,)) + x[0] + table.astype(jnp.float32)[:, 0])
    key, x = weft.random.key(3), np.ones(2, np.float16)
    again = deserialize(export(f)(key, x).serialize())
    np.testing.assert_array_equal(again.call(key, x), f(key, x))


def test_platforms_are_checked():
    exported = export(weft.jit(jnp.sin), platforms=["cuda"])(1.0)
    with pytest.raises(ValueError, match="platforms cuda"):
        exported.call(1.0)
    anywhere = export(weft.jit(jnp.sin), platforms=["tpu"], disabled_checks=[DisabledSafetyCheck.platform()])(1.0)
    np.testing.assert_allclose(anywhere.call(1.0), np.sin(1.0), rtol=1e-6)


class Pair(NamedTuple):
    first: object
    second: object


class Named:
    def __init__(self, name, value):
        self.name, self.value = name, value


weft.tree_util.register_pytree_node(Named, lambda n: ((n.value,), n.name), lambda name, v: Named(name, *v))


def test_registered_nodes_are_written():
    f = weft.jit(lambda p: Named("out", p.first + p.second.value))
    exported = export(f)(Pair(1.0, Named("in", 2.0)))
    with pytest.raises(ArgumentError, match="unregistered type"):
        exported.serialize()
    register_namedtuple_serialization(Pair, serialized_name="tests.Pair")
    register_pytree_node_serialization(
        Named, serialized_name="tests.Named", serialize_auxdata=str.encode, deserialize_auxdata=bytes.decode
    )
    out = deserialize(exported.serialize()).call(Pair(1.0, Named("in", 2.0)))
    assert (out.name, out.value) == ("out", 3.0)
    with pytest.raises(ValueError, match="registered"):
        register_namedtuple_serialization(Pair, serialized_name="tests.Other")


def test_compiled_functions_are_stored():
    from weft.experimental.serialize_executable import deserialize_and_load, serialize

    compiled = weft.jit(lambda p: Named("out", p["x"] * 2)).lower({"x": jnp.ones(3)}).compile()
    again = deserialize_and_load(*serialize(compiled))
    assert again({"x": jnp.ones(3)}).value.tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(InvalidInputTypeError, match="was compiled"):
        again({"x": jnp.ones(4)})
    with pytest.raises(TypeError, match="needs the result of"):
        serialize(weft.jit(jnp.sin))


# -- malformed files --------------------------------------------------------------------------------------------------


def resealed(data):
    """Return the bytes with a digest that fits them again."""
    line, _, body = data.partition(b"\n")
    return b" ".join([*line.split(b" ")[:3], _digest(body).encode()]) + b"\n" + body


def mutated(data, rng):
    """Return a file with something changed, dropped or doubled, whose digest fits mostly."""
    data = bytearray(data)
    start = data.index(b"\n") + 1
    kind = rng.randrange(6)
    i, j = sorted(rng.randrange(start, len(data)) for _ in range(2))
    if kind == 0:
        data[i] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del data[i : min(j, i + 40)]
    elif kind == 2:
        data[i:i] = data[j : j + rng.randrange(1, 40)]
    elif kind == 3:
        data[i:j] = b""
    elif kind == 4:
        for token in rng.sample([b"f32", b"1", b"null", b"[", b"add", b"@0", b"sin", b"b", b'"int"', b"(0,)"], 3):
            data[i : i + len(token)] = token
    else:
        header, _, rest = bytes(data[start:]).partition(b"\n")
        value = json.loads(header)
        word = rng.choice(sorted(value))
        others = [None, 0, -1, 1 << 70, "", "b", [], {}, [None], {"int": "3"}, value[rng.choice(sorted(value))]]
        value[word] = rng.choice(others)
        data[start:] = json.dumps(value).encode() + b"\n" + rest
    return bytes(data) if rng.random() < 0.1 else resealed(bytes(data))


def small_exports():
    shape = struct(symbolic_shape("b, 3", constraints=["b <= 64"]), np.float32)
    yield export(weft.jit(lambda x: jnp.mean(jnp.sin(x), 0) + jnp.arange(3.0)))(shape).serialize(vjp_order=1)
    yield export(weft.jit(lambda x: lax.scan(lambda c, r: (c + r[0], x[c.astype(int)]), 0.0, x)))(shape).serialize()


@pytest.mark.parametrize("count", [1200, pytest.param(20_000, marks=pytest.mark.slow)])
def test_malformed_files_raise_one_class_of_errors(count):
    rng = random.Random(count)
    files = list(small_exports())
    refused = 0
    for _ in range(count):
        data = mutated(rng.choice(files), rng)
        try:
            deserialize(data)  # some changes leave a good file, such as one of a name
        except FileFormatError:
            refused += 1
    assert refused > count * 0.8


@pytest.mark.parametrize(
    "data, what",
    [
        (b"", "no export"),
        (b"PK\x03\x04" * 100, "no export"),
        (b"weft export 999 " + b"0" * 64 + b"\n{}", "version 999"),
        (b"weft export 1 " + b"0" * 64 + b"\n{}", "digest"),
        (resealed(b"weft export 1 " + b"0" * 64 + b"\n{}\n"), "KeyError"),
    ],
)
def test_what_is_wrong_with_a_file(data, what):
    with pytest.raises(FileFormatError, match=what):
        deserialize(data)


@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "data" / "exports").glob("*.weft")), ids=lambda p: p.stem)
def test_files_of_earlier_versions_are_read(path):
    """Files are added to this folder, never written again: they are what users have."""
    exported = deserialize(path.read_bytes())
    expected = np.load(path.with_suffix(".npz"))
    params = {"w": np.linspace(-1, 1, 12, dtype="f4").reshape(3, 4)}
    x, key = np.linspace(0, 2, 15, dtype="f4").reshape(5, 3), weft.random.key(7)
    out = exported.call(params, x, key)
    np.testing.assert_allclose(out["y"], expected["y"], rtol=1e-5)
    np.testing.assert_allclose(out["mean"], expected["mean"], rtol=1e-5)
    gradient = weft.grad(lambda p: exported.call(p, x, key)["y"].sum())(params)
    np.testing.assert_allclose(gradient["w"], expected["w"], rtol=1e-4)


def test_exports_of_different_scopes_share_jitted_functions():
    """The second export compares its types with those of the first, to explain why the function is staged again."""
    inner = weft.jit(lambda x: x * 2)
    for name in ("first_size, 8", "second_size, 8"):
        x = struct(symbolic_shape(name), np.float32)
        assert export(weft.jit(lambda x: inner(x)))(x).out_avals[0].shape == x.shape

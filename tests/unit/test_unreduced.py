"""Arrays that are unreduced outside of programs: each device has a term of the sum that they are."""

from __future__ import annotations

import functools
from typing import Any

import numpy as onp
import pytest

import weft
import weft.numpy as np
from weft.base.errors import ShardingTypeError
from weft.checkpointing import save
from weft.primitives.movement.sharding_constraint import drop_sharding
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P

A = onp.arange(128, dtype=onp.float32).reshape(8, 16) / 50
B = onp.arange(128, dtype=onp.float32).reshape(16, 8) / 50
U = P("x", None, unreduced={"y"})


@functools.cache
def mesh() -> Mesh:
    return weft.make_mesh((4, 2), ("x", "y"))


def put(x: Any, *entries: Any, **more: Any) -> Any:
    return weft.device_put(x, NamedSharding(mesh(), P(*entries, **more)))


def terms() -> Any:
    """Return a product whose sum over y is left to be done."""
    with weft.set_mesh(mesh()):
        return weft.jit(lambda a, b: np.matmul(a, b, out_sharding=U))(put(A, "x", "y"), put(B, "y"))


def sent(function: Any, *args: Any) -> dict[str, Any]:
    return {row.kind: row.bytes for row in weft.jit(function).lower(*args).compile().communication}


def test_results_of_programs_may_be_unreduced() -> None:
    found = terms()
    assert found.sharding.spec == U and found.aval.short() == "f32[8@x,8]{U:y}"
    parts = [onp.asarray(s.data) for s in found.addressable_shards]
    onp.testing.assert_allclose(parts[0] + parts[1], (A @ B)[:2], rtol=1e-5)
    onp.testing.assert_allclose(parts[0], A[:2, :8] @ B[:8], rtol=1e-5)
    with weft.set_mesh(mesh()):
        product = lambda a, b: np.matmul(a, b, out_sharding=U)
        assert sent(product, put(A, "x", "y"), put(B, "y")) == {}
    # What is read or printed of it is the sum, to the bit what a program adds.
    onp.testing.assert_allclose(found, A @ B, rtol=1e-5)
    summed = weft.jit(lambda x: weft.sharding.reshard(x, NamedSharding(mesh(), P("x", None))))(found)
    onp.testing.assert_array_equal(found, summed)
    assert str(found) == str(onp.asarray(found))


def test_they_are_arguments_and_are_resharded() -> None:
    found, expected = terms(), A @ B
    with weft.set_mesh(mesh()):
        for spec, collectives in ((P("x", None), {"psum"}), (P("x", "y"), {"reduce_scatter"})):
            whole = lambda x, spec=spec: weft.sharding.reshard(-x, spec)
            assert set(sent(whole, found)) == collectives
            for result in (weft.jit(whole)(found), whole(found)):
                assert result.sharding.spec == spec
                onp.testing.assert_allclose(result, -expected, rtol=1e-5)
        # What is linear leaves the sum to be done.
        for linear in (lambda x: -x, lambda x: x.T, lambda x: weft.jit(lambda y: -y)(x)):
            assert sent(linear, found) == {}
            for result in (weft.jit(linear)(found), linear(found)):
                assert result.sharding.spec.unreduced == {"y"}
                onp.testing.assert_allclose(result, linear(expected), rtol=1e-5)
        other = terms()
        assert sent(lambda x, y: x + y, found, other) == {}
        for result in (weft.jit(lambda x, y: x + y)(found, other), found + other):
            assert result.sharding.spec == U
            onp.testing.assert_allclose(result, expected * 2, rtol=1e-5)
        with pytest.raises(ShardingTypeError, match=r"(?s)not linear in `found`.*reshard\(found, P\('x', None\)\)"):
            np.sin(found)


def test_arrays_are_put_unreduced() -> None:
    there = put(A, "x", unreduced={"y"})
    assert there.sharding.spec == P("x", unreduced={"y"})
    onp.testing.assert_array_equal(there, A)
    onp.testing.assert_array_equal(there.addressable_shards[1].data, onp.zeros((2, 16)))
    onp.testing.assert_array_equal(weft.device_put(there, NamedSharding(mesh(), P())), A)
    with weft.set_mesh(mesh()):
        whole = put(A, "x")
        result = weft.jit(lambda x: x * 2, out_shardings=NamedSharding(mesh(), P(None, "x", unreduced={"y"})))(whole)
        assert result.sharding.spec == P(None, "x", unreduced={"y"})
        onp.testing.assert_array_equal(result, A * 2)
        both = put(A, unreduced={"x", "y"})
        onp.testing.assert_array_equal(both + both, A * 2)
    with pytest.raises(TypeError, match="is unreduced"):
        save("unreduced.weft", {"a": there})
    small = put(A.astype(np.bfloat16), "x", unreduced={"y"})
    assert onp.asarray(small).dtype == np.bfloat16


def test_gradients_are_unreduced_where_weights_are_reduced() -> None:
    """The type of a weight says that its gradient is summed later."""
    with weft.set_mesh(mesh()):
        w, x = put(B, reduced={"x"}), put(A, "x")
        loss = lambda w: (np.matmul(x, w, out_sharding=P("x", None)) ** 2).sum()
        gradient = weft.jit(weft.grad(loss))(w)
        assert gradient.sharding.spec == P(None, None, unreduced={"x"})
        expected = weft.grad(lambda w: ((A @ w) ** 2).sum())(B)
        onp.testing.assert_allclose(gradient, expected, rtol=1e-4)


def test_checks_accept_unreduced_results() -> None:
    """The parts of an unreduced result are terms of a sum, not parts of a whole."""
    with weft.enable_checks(True), weft.set_mesh(mesh()):
        x, y = put(A, None, "x"), put(A.T, "x", None)
        product = weft.jit(lambda x, y: np.dot(x, y, out_sharding=P(None, None, unreduced={"x"})))(x, y)
        onp.testing.assert_allclose(weft.reshard(product, P()), A @ A.T, rtol=1e-5)


def test_devices_have_their_own_terms_outside_of_programs() -> None:
    with weft.set_mesh(mesh()):
        product = np.einsum("ij,jk->ik", put(A, "x", "y"), put(B, "y"), out_sharding=U)
        assert product.sharding.spec == U
        onp.testing.assert_allclose(product.addressable_shards[0].data, A[:2, :8] @ B[:8], rtol=1e-5)
        onp.testing.assert_allclose(product.addressable_shards[1].data, A[:2, 8:] @ B[8:], rtol=1e-5)
        left = drop_sharding(product)
        assert left.aval.is_plain
        onp.testing.assert_allclose(left.addressable_shards[0].data, (A @ B)[:2], rtol=1e-5)

"""`weft.test_util.check_grads` accepts correct derivatives and names wrong ones."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from weft import lax
from weft.api.custom import custom_jvp, custom_vjp
from weft.api.differentiate import jvp
from weft.api.vjp import vjp
from weft.base.settings import enable_x64
from weft.test_util import check_grads, check_jvp, check_vjp

X = np.array([0.3, -0.8, 1.1], np.float32)


def smooth(x: Any, tree: Any) -> Any:
    return {"a": lax.mul(lax.sin(x), tree["y"]), "b": (lax.exp(x), tree["n"])}


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("modes", [("fwd",), ("rev",), ("fwd", "rev")])
def test_right_derivatives_pass(order: int, modes: Any) -> None:
    check_grads(smooth, (X, {"y": X[::-1].copy(), "n": np.arange(3, dtype=np.int32)}), order, modes)


@pytest.mark.parametrize("dtype", [np.float64, np.complex128, np.complex64, ml_dtypes.bfloat16, np.float16])
def test_every_precision(dtype: Any) -> None:
    with enable_x64(True):
        point = X.astype(dtype) * dtype(1 + 0.5j) if np.dtype(dtype).kind == "c" else X.astype(dtype)
        check_grads(lambda x: lax.mul(lax.sin(x), x), (point,), 2)


@custom_jvp
def wrong_forward(x: Any) -> Any:
    return lax.sin(x)


wrong_forward.defjvp(lambda p, t: (lax.sin(p[0]), lax.mul(lax.cos(p[0]), lax.mul(t[0], 1.1))))


@custom_vjp
def wrong_reverse(x: Any) -> Any:
    return lax.sin(x)


wrong_reverse.defvjp(lambda x: (lax.sin(x), x), lambda x, ct: (lax.mul(ct, lax.sin(x)),))


def test_wrong_forward_mode_is_named() -> None:
    with pytest.raises(AssertionError, match="forward mode of wrong_forward: the tangent of result"):
        check_grads(wrong_forward, (X,), 1, modes=["fwd"])


def test_wrong_reverse_mode_is_named() -> None:
    with pytest.raises(AssertionError, match="reverse mode of wrong_reverse: cotangents"):
        check_grads(wrong_reverse, (X,), 1, modes=["rev"])


def test_wrong_second_order_is_named() -> None:
    """Right once, wrong when differentiated again."""

    @custom_jvp
    def subtle(x: Any) -> Any:
        return lax.square(x)

    subtle.defjvp(lambda p, t: (lax.square(p[0]), lax.mul(lax.mul(lax.stop_gradient(p[0]), 2.0), t[0])))
    check_grads(subtle, (X,), 1)
    with pytest.raises(AssertionError, match="forward mode of forward mode of"):
        check_grads(subtle, (X,), 2, modes=["fwd"])


def test_own_derivatives_can_be_checked() -> None:
    check_jvp(lax.sin, lambda p, t: jvp(lax.sin, p, t), (X,))
    check_vjp(lax.sin, lambda *p: vjp(lax.sin, *p), (X,))
    with pytest.raises(AssertionError, match="the result itself"):
        check_jvp(lax.sin, lambda p, t: jvp(lax.cos, p, t), (X,))


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="modes 'fwd' and 'rev'"):
        check_grads(lax.sin, (X,), 1, modes=["forward"])
    with pytest.raises(ValueError, match="order 1 and up"):
        check_grads(lax.sin, (X,), 0)

"""Convolutions by cuDNN on a simulated GPU: forward, and the gradients, which are recognised in programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.cuda.simulated import simulated_gpu
from tests.cuda.test_matmuls import Gpu, check, ramps
from weft import lax
from weft.runtime.cuda.libraries.cudnn import CudnnError, Graph


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    with simulated_gpu(monkeypatch) as (device, driver):
        yield device, driver, driver.with_libraries("cudnn")["cudnn"]


# Layouts, sizes of batch, operand, kernel and features, and what else a convolution has.
CASES: dict[str, tuple[tuple[str, str, str], tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "same": (("NHWC", "HWIO", "NHWC"), (2, 6, 5, 3), (3, 3, 3, 4), {"padding": "SAME"}),
    "valid, NCHW": (("NCHW", "OIHW", "NCHW"), (2, 3, 6, 7), (4, 3, 3, 2), {"padding": "VALID"}),
    "strided": (("NHWC", "HWIO", "NHWC"), (2, 7, 8, 3), (3, 3, 3, 4), {"padding": "SAME", "window_strides": (2, 2)}),
    "dilated": (("NHWC", "OHWI", "NHWC"), (2, 9, 9, 3), (4, 3, 2, 3), {"padding": "SAME", "rhs_dilation": (2, 1)}),
    "cut": (("NHWC", "HWIO", "NHWC"), (2, 8, 9, 3), (2, 3, 3, 4), {"padding": "VALID", "window_strides": (3, 2)}),
    "one dimension": (("NWC", "WIO", "NWC"), (2, 9, 3), (3, 3, 4), {"padding": [(1, 2)], "window_strides": (2,)}),
    "three dimensions": (("NDHWC", "DHWIO", "NDHWC"), (1, 4, 5, 4, 2), (2, 3, 2, 2, 3), {"padding": "SAME"}),
}  # fmt: skip


def convolution(layout: Any, x: Any, w: Any, **params: Any) -> Any:
    strides = params.pop("window_strides", (1,) * (x.ndim - 2))
    return lax.conv_general_dilated(x, w, strides, dimension_numbers=layout, **params)


@pytest.mark.parametrize("name", CASES)
def test_forward_and_gradients(gpu: Gpu, name: str) -> None:
    layout, x_shape, w_shape, params = CASES[name]

    def loss(x: Any, w: Any) -> Any:
        y = convolution(layout, x, w, **params)
        return wnp.sum(y * y * 0.5), y

    x, w = ramps("float32", x_shape, w_shape)
    calls = check(gpu, weft.value_and_grad(loss, (0, 1), has_aux=True), x, w, calls=3, tolerance=1e-5)
    assert sorted(calls) == [["data"], ["forward"], ["weights"]]


def layers(x: Any, w: Any, b: Any, c: Any) -> Any:
    """Two convolutions with biases and relu, of which something else than a convolution reads the last."""
    x = weft.nn.relu(convolution(CASES["same"][0], x, w, padding="SAME") + b)
    y = convolution(CASES["same"][0], x, w[..., :1] @ wnp.ones((1, 3)), padding="SAME") if x.shape[-1] == 3 else x
    return weft.nn.relu(y + c)


def check_prepared(gpu: Gpu, f: Callable[..., Any], *arrays: np.ndarray, calls: int) -> list[Any]:
    """As `check`, with calls that were prepared: plans with relu are run before they are used."""
    weft.jit(f)(*(weft.device_put(a, gpu[0]) for a in arrays))
    return check(gpu, f, *arrays, calls=calls, tolerance=1e-5)


def test_biases_and_relu_are_in_the_call(gpu: Gpu) -> None:
    """Where relu is differentiated too: nothing needs what it was applied to."""
    x, w, b, c = ramps("float32", (2, 6, 5, 3), (3, 3, 3, 3), (3,), (3,))
    whole = ["forward", "pointwise", "pointwise"]
    assert check_prepared(gpu, layers, x, w, b, c, calls=2) == [whole, whole]

    def loss(*operands: Any) -> Any:
        y = layers(*operands)
        return wnp.sum(y * y)

    calls = check_prepared(gpu, weft.grad(loss, (0, 1, 2, 3)), x, w, b, c, calls=6)
    assert calls.count(whole) == 2 and sorted(map(len, calls)) == [1] * 4 + [3] * 2

    def biased(x: Any, w: Any, b: Any) -> Any:
        y = convolution(CASES["same"][0], x, w, padding="SAME") + b
        return y, weft.nn.relu(y)

    assert check(gpu, biased, x, w, b, calls=1, tolerance=1e-5) == [["forward", "pointwise"]]
    # Biases of other dimensions, exact products and short floats have kernels of their own.
    exact = {"padding": "SAME", "precision": "highest"}
    calls = check(gpu, lambda x, w, b: convolution(CASES["same"][0], x, w, **exact) + b, x, w, b, calls=1)
    assert calls == [["forward"]]
    assert check(gpu, lambda x, w, b: biased(x, w, b[:, None]), x, w, b[:1] * wnp.ones(5), calls=1) == [["forward"]]
    short = ramps("bfloat16", (2, 6, 5, 3), (3, 3, 3, 3), (3,))
    assert check(gpu, biased, *short, calls=1) == [["forward"]]


def test_what_no_engine_computes_follows(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then cuDNN adds the bias by a call of its own."""
    plans = Graph.plans

    def refused(graph: Any, *arguments: Any) -> Any:
        if graph.convolves and graph.follows:
            raise CudnnError("there is no engine")
        return plans(graph, *arguments)

    monkeypatch.setattr(Graph, "plans", refused)
    x, w, b = ramps("float32", (2, 6, 5, 3), (3, 3, 3, 4), (4,))
    f = lambda x, w, b: convolution(CASES["same"][0], x, w, padding="SAME") + b
    assert check(gpu, f, x, w, b, calls=2, tolerance=1e-5) == [["forward"], ["pointwise"]]
    g = lambda x, w, b: weft.nn.relu(f(x, w, b))
    assert check_prepared(gpu, g, x, w, b, calls=2) == [["forward"], ["pointwise", "pointwise"]]


def test_relu_of_nan_is_nan(gpu: Gpu) -> None:
    """Engines that have 0 there are not used, also where they are the quickest."""
    x, w, b = ramps("float32", (4, 16, 16, 8), (3, 3, 8, 96), (96,))
    x[1, 2, 3, 0] = np.nan
    f = weft.jit(lambda x, w, b: weft.nn.relu(convolution(CASES["same"][0], x, w, padding="SAME") + b))
    found = np.asarray(f(*(weft.device_put(a, gpu[0]) for a in (x, w, b))))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(np.asarray(f(x, w, b))))
    assert np.isnan(found).sum() == 9 * 96


@pytest.mark.parametrize("padding", [[(3, 3), (3, 3)], "VALID"])
def test_windows_that_see_nothing_but_padding(gpu: Gpu, padding: Any) -> None:
    """Whether relu keeps a nan is seen at the first result, which may not be of any element."""
    x, w, b = ramps("float32", (2, 6, 5, 3), (3, 3, 3, 4), (4,))
    f = lambda x, w, b: weft.nn.relu(convolution(CASES["same"][0], x, w, padding=padding) + b)
    check_prepared(gpu, f, x, w, b, calls=1 if padding == "VALID" else 2)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_short_floats(gpu: Gpu, dtype: str) -> None:
    layout, x_shape, w_shape, params = CASES["same"]
    arrays = ramps(dtype, x_shape, w_shape)
    check(gpu, lambda x, w: convolution(layout, x, w, **params), *arrays, calls=1)
    wide = {**params, "preferred_element_type": "float32"}
    check(gpu, lambda x, w: convolution(layout, x, w, **wide), *arrays, calls=1)


def test_transposed_convolutions(gpu: Gpu) -> None:
    x, w = ramps("float32", (2, 5, 5, 3), (3, 3, 3, 4))
    (call,) = check(gpu, lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME"), x, w, calls=1)
    assert call == ["data"]


def test_what_cudnn_does_not_have_is_our_own(gpu: Gpu) -> None:
    layout = ("NHWC", "HWIO", "NHWC")
    x, w = ramps("float32", (2, 6, 5, 4), (3, 3, 2, 4))
    check(gpu, lambda x, w: convolution(layout, x, w, padding="SAME", feature_group_count=2), x, w, calls=0)
    x, w = ramps("float32", (2, 6, 5, 3), (3, 3, 3, 4))
    check(gpu, lambda x, w: convolution(layout, x, w, padding=[(-1, 0), (0, 0)]), x, w, calls=0)


def test_exact_products_use_no_tensor_cores(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    layout, x_shape, w_shape, params = CASES["same"]
    x, w = ramps("float32", x_shape, w_shape)
    seen: list[int] = []
    monkeypatch.setattr(
        "weft.runtime.cuda.libraries.cudnn.Plan.start",
        lambda plan, stream, tensors, addresses, workspace: seen.append(plan.engine),
    )
    for precision in (None, "highest"):
        weft.jit(lambda x, w, p=precision: convolution(layout, x, w, precision=p, **params))(
            *(weft.device_put(a, gpu[0]) for a in (x, w))
        )
    assert seen == [1, 2]  # the first is not deterministic

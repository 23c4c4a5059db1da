"""Kernels of convolutions compute what `conv_general_dilated` computes, with every setting; also gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.emitting import check, close
from tests.compiler.test_emit_contraction import whole
from weft import lax
from weft.primitives.contraction.convolution import conv_general_dilated

EXACT = np.testing.assert_array_equal
LAYOUTS = {1: ("NWC", "WIO", "NWC"), 2: ("NHWC", "HWIO", "NHWC"), 3: ("NDHWC", "DHWIO", "NDHWC")}


def convolved(rank: int, layout: Any = None, **settings: Any) -> Callable[..., Any]:
    settings.setdefault("window_strides", (1,) * rank)
    settings.setdefault("padding", "SAME")
    return lambda x, w: lax.conv_general_dilated(x, w, dimension_numbers=layout or LAYOUTS[rank], **settings)


@pytest.mark.parametrize("index", range(len(list(conv_general_dilated.samples()))))
def test_samples_of_the_primitive(index: int) -> None:
    sample = list(conv_general_dilated.samples())[index]
    kinds = check(lambda a, b: conv_general_dilated(a, b, **sample.params), *sample.args, compare=close(1e-6))
    assert kinds == ["convolution"]


CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "same": (convolved(2), (2, 6, 7, 5), (3, 3, 5, 18)),
    "valid": (convolved(2, padding="VALID"), (2, 6, 7, 5), (3, 2, 5, 18)),
    "strides": (convolved(2, window_strides=(2, 3)), (2, 7, 9, 4), (3, 3, 4, 6)),
    "uneven padding": (convolved(2, padding=((2, 0), (1, 3))), (1, 5, 6, 3), (2, 3, 3, 4)),
    "negative padding": (convolved(2, padding=((-1, 0), (2, -2))), (1, 6, 7, 3), (2, 3, 3, 4)),
    "cropped": (convolved(2, padding=((-1, -1), (-2, 0))), (1, 6, 7, 3), (2, 3, 3, 4)),
    "window dilation": (convolved(2, rhs_dilation=(2, 3)), (1, 8, 9, 3), (3, 2, 3, 4)),
    "operand dilation": (convolved(2, lhs_dilation=(2, 3), padding=((1, 2), (2, 1))), (1, 4, 5, 3), (3, 4, 3, 4)),
    "one tap for three": (convolved(1, lhs_dilation=(3,), padding=((0, 4),)), (2, 4, 3), (1, 3, 4)),
    "spread and strided": (
        convolved(2, lhs_dilation=(2, 2), window_strides=(3, 1), rhs_dilation=(1, 2), padding=((1, 2), (3, 1))),
        (1, 4, 5, 3),
        (3, 2, 3, 4),
    ),
    "spread and cropped": (convolved(1, lhs_dilation=(2,), padding=((-1, -2),)), (2, 7, 3), (2, 3, 4)),
    "groups": (convolved(2, feature_group_count=2), (2, 5, 6, 8), (3, 3, 4, 6)),
    "depthwise": (convolved(2, feature_group_count=20), (2, 5, 6, 20), (3, 3, 1, 20)),
    "depthwise twice": (convolved(2, feature_group_count=5), (2, 5, 6, 5), (3, 3, 1, 10)),
    "groups of the batch": (convolved(2, batch_group_count=2), (4, 5, 6, 3), (3, 3, 3, 6)),
    "channels first": (convolved(2, ("NCHW", "OIHW", "NCHW")), (2, 3, 6, 18), (5, 3, 3, 3)),
    "channels first, strides": (
        convolved(2, ("NCHW", "OIHW", "NCHW"), window_strides=(2, 2)),
        (2, 3, 6, 9),
        (5, 3, 3, 3),
    ),
    "odd layouts": (convolved(2, ("HNCW", "IWOH", "CWHN")), (6, 2, 3, 7), (3, 2, 5, 3)),
    "one dimension": (convolved(1), (3, 20, 4), (5, 4, 6)),
    "three dimensions": (convolved(3, window_strides=(1, 2, 1)), (1, 4, 5, 6, 3), (2, 3, 2, 3, 4)),
    "no dimensions": (
        lambda x, w: lax.conv_general_dilated(x, w, (), (), dimension_numbers=("NC", "OI", "NC")),
        (5, 7),
        (9, 7),
    ),
    "one by one": (convolved(2, padding="VALID"), (2, 4, 5, 6), (1, 1, 6, 20)),
    "window larger than operand": (convolved(1, padding="VALID"), (2, 3, 4), (5, 4, 6)),
    "only padding": (convolved(1, padding=((4, 4),)), (1, 2, 3), (2, 3, 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_settings(name: str) -> None:
    function, x, w = CASES[name]
    small = np.prod(x) * np.prod(w) < 40_000
    assert check(function, whole(*x), whole(*w, seed=1), compare=EXACT, interpret=bool(small)) == ["convolution"]


@pytest.mark.parametrize("name", ["same", "strides", "groups", "depthwise", "window dilation", "operand dilation"])
def test_gradients(name: str) -> None:
    """Cotangents of operand and kernel; those of strides spread the cotangent out."""
    function, x, w = CASES[name]

    def gradients(x: Any, w: Any, cotangent: Any) -> Any:
        return weft.vjp(function, x, w)[1](cotangent)

    operands = whole(*x), whole(*w, seed=1)
    cotangent = whole(*weft.eval_shape(function, *operands).shape, seed=2)
    kinds = [kind for kind in check(gradients, *operands, cotangent, compare=EXACT, interpret=False)]
    assert kinds.count("convolution") == 2


DTYPES = [
    np.bool_, np.int8, np.uint16, np.int64, np.float16, np.float64, np.complex64, ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn, ml_dtypes.int4,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_dtypes(dtype: Any) -> None:
    x, w = whole(1, 5, 6, 3, dtype=dtype), whole(2, 2, 3, 4, dtype=dtype, seed=1)
    compare = close(0.07) if np.dtype(dtype).name.startswith("float8") else EXACT
    with weft.enable_x64(True):
        assert check(convolved(2), x, w, compare=compare) == ["convolution"]
        assert check(convolved(2, padding="VALID", window_strides=(2, 1)), x, w, compare=compare) == ["convolution"]


def test_wider_results() -> None:
    x, w = whole(1, 5, 6, 3, dtype=np.int8), whole(2, 2, 3, 4, dtype=np.int8, seed=1)
    assert check(convolved(2, preferred_element_type=np.int32), x, w, compare=EXACT) == ["convolution"]


LARGE: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = {
    "channels last": (convolved(2), (4, 16, 17, 24), (3, 3, 24, 40)),
    "channels first": (convolved(2, ("NCHW", "OIHW", "NCHW")), (4, 24, 16, 17), (40, 24, 3, 3)),
    "depthwise": (convolved(2, feature_group_count=72), (4, 16, 17, 72), (3, 3, 1, 72)),
    "strides": (convolved(2, window_strides=(2, 2)), (4, 17, 18, 24), (3, 3, 24, 40)),
}


@pytest.mark.parametrize("name", LARGE)
def test_larger_convolutions_and_their_gradients(name: str) -> None:
    function, x, w = LARGE[name]
    operands = whole(*x), whole(*w, seed=1)
    cotangent = whole(*weft.eval_shape(function, *operands).shape, seed=2)
    assert check(function, *operands, compare=EXACT, interpret=False) == ["convolution"]
    kinds = check(lambda x, w, c: weft.vjp(function, x, w)[1](c), *operands, cotangent, compare=EXACT, interpret=False)
    assert kinds.count("convolution") == 2


def test_bias_and_activation_follow_in_the_same_kernel() -> None:
    def layer(x: Any, w: Any, bias: Any) -> Any:
        return wnp.maximum(convolved(2)(x, w) + bias, 0.0)

    assert check(layer, whole(2, 5, 6, 3), whole(3, 3, 3, 20), whole(20), compare=EXACT) == ["convolution"]


@pytest.mark.parametrize("dilation", [3, 4])
@pytest.mark.parametrize("padding", [(0, 0), (1, 2), (4, 1), (-1, 3)])
def test_every_phase_of_a_dilated_operand_has_its_taps(dilation: int, padding: tuple[int, int]) -> None:
    """With two zeros or more between elements, a result that is off by a phase has other taps."""
    x, w = whole(2, 3, 5), whole(4, 3, 7, seed=1)
    convolve = lambda x, w: lax.conv_general_dilated(x, w, (1,), [padding], lhs_dilation=(dilation,))
    check(convolve, x, w)


@pytest.mark.parametrize(
    ("shape", "window", "groups"),
    [((2, 16, 6, 5), (32, 16, 3, 5), 1), ((2, 20, 7, 6), (36, 10, 4, 1), 2), ((8, 16, 60), (24, 16, 5), 1)],
)
def test_phases_share_a_copy_of_the_window(shape: tuple[int, ...], window: tuple[int, ...], groups: int) -> None:
    """Where lanes along the features would be gathered from the window, one kernel copies it for all phases."""
    rank = len(shape) - 2
    names = ("NCW", "OIW", "NWC") if rank == 1 else ("NCHW", "OIHW", "NHWC")
    padding = ((2, 1),) * rank
    convolve = convolved(rank, names, lhs_dilation=(2,) * rank, padding=padding, feature_group_count=groups)
    x, w = whole(*shape), whole(*window, seed=1)
    assert check(convolve, x, w, compare=EXACT) == ["convolution"]
    kernels = [name.split("_")[0] for name in weft.jit(convolve).lower(x, w).compile().kernels]
    assert kernels.count("pack") == 1 and kernels.count("contraction") == 2**rank

"""Convolutions against their definition: strides, padding, dilations, groups, orders of axes, and both gradients."""

import itertools

import ml_dtypes
import numpy as np
import pytest

import weft
from weft import lax
from weft.ir.types import array_type
from weft.primitives.contraction.convolution import conv_general_dilated as primitive
from weft.primitives.contraction.convolution_shapes import ConvDimensionNumbers, padtype_to_pads


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype)


def close(got, want, tolerance=1e-4):
    got = np.asarray(got)
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def by_definition(lhs, rhs, strides, padding, lhs_dilation, rhs_dilation, specs, groups, batch_groups):
    """Sum over every element of every window, reading the places that the definition names."""
    lhs_spec, rhs_spec, out_spec = specs
    spatial = [letter for letter in rhs_spec if letter not in "OI"]
    x = np.transpose(lhs, [lhs_spec.index(c) for c in ("N", "C", *spatial)])
    kernel = np.transpose(rhs, [rhs_spec.index(c) for c in ("O", "I", *spatial)])
    batch, features, *sizes = x.shape
    out_features, in_features, *window = kernel.shape
    counts = [
        max(0, ((n - 1) * ld + 1 + low + high - ((k - 1) * rd + 1)) // s + 1)
        for n, k, s, (low, high), ld, rd in zip(
            sizes, window, strides, padding, lhs_dilation, rhs_dilation, strict=True
        )
    ]
    out = np.zeros((batch // batch_groups, out_features, *counts), np.float64)
    for o in itertools.product(*map(range, counts)):
        for r in itertools.product(*map(range, window)):
            indices = [
                a * s + b * rd - low for a, b, s, rd, (low, _) in zip(o, r, strides, rhs_dilation, padding, strict=True)
            ]
            if any(p < 0 or p % d or p // d >= n for p, d, n in zip(indices, lhs_dilation, sizes, strict=True)):
                continue
            read = x[(slice(None), slice(None), *(p // d for p, d in zip(indices, lhs_dilation, strict=True)))]
            weights = kernel[(slice(None), slice(None), *r)]
            for f in range(out_features):
                group = f // (out_features // max(groups, batch_groups))
                if batch_groups > 1:
                    rows = read.reshape(batch_groups, batch // batch_groups, features)[group]
                else:
                    rows = read[:, group * in_features : (group + 1) * in_features] if groups > 1 else read
                out[(slice(None), f, *o)] += rows @ weights[f]
    return np.transpose(out, [("N", "C", *spatial).index(c) for c in out_spec])


def configurations(count):
    random = np.random.default_rng(3)
    while count:
        rank = int(random.choice([1, 1, 2, 2, 3]))
        groups = int(random.choice([1, 1, 2, 3]))
        batch_groups = int(random.choice([1, 2])) if groups == 1 else 1
        letters = "HWD"[:rank]
        sizes = dict(zip(letters, random.integers(2, 6, rank).tolist(), strict=True))
        window = dict(zip(letters, random.integers(1, 4, rank).tolist(), strict=True))
        features = groups * int(random.integers(1, 3))
        sizes |= {"N": batch_groups * int(random.integers(1, 3)), "C": features}
        window |= {"O": groups * batch_groups * int(random.integers(1, 3)), "I": features // groups}
        specs = tuple("".join(random.permutation(list(marks + letters)).tolist()) for marks in ("NC", "OI", "NC"))
        yield (
            tuple(sizes[c] for c in specs[0]),
            tuple(window[c] for c in specs[1]),
            random.integers(1, 4, rank).tolist(),
            [tuple(pair) for pair in random.integers(-1, 4, (rank, 2)).tolist()],
            random.choice([1, 1, 2, 3], rank).tolist(),
            random.choice([1, 1, 2, 3], rank).tolist(),
            specs,
            groups,
            batch_groups,
        )
        count -= 1


@pytest.mark.parametrize("configuration", list(configurations(40)))
def test_convolution_and_gradients_follow_the_definition(configuration):
    lhs_shape, rhs_shape, *rest = configuration
    strides, padding, lhs_dilation, rhs_dilation, specs, groups, batch_groups = rest
    lhs, rhs = normal(*lhs_shape), normal(*rhs_shape, seed=1)

    def convolved(x, kernel):
        return lax.conv_general_dilated(
            x, kernel, strides, padding, lhs_dilation, rhs_dilation, specs, groups, batch_groups
        )

    out, pullback = weft.vjp(convolved, lhs, rhs)
    close(out, by_definition(lhs, rhs, *rest))
    # The gradients are adjoints of the two linear maps, on directions of their own.
    cotangent = normal(*out.shape, seed=2)
    to_lhs, to_rhs = (np.asarray(t) for t in pullback(cotangent))
    for other in range(2):
        x, kernel = normal(*lhs_shape, seed=3 + other), normal(*rhs_shape, seed=5 + other)
        assert np.isclose(np.sum(cotangent * by_definition(x, rhs, *rest)), np.sum(to_lhs * x), rtol=1e-3, atol=1e-3)
        assert np.isclose(
            np.sum(cotangent * by_definition(lhs, kernel, *rest)), np.sum(to_rhs * kernel), rtol=1e-3, atol=1e-3
        )


@pytest.mark.parametrize(("groups", "batch_groups"), [(1, 1), (2, 1), (1, 2)])
def test_convolution_under_vmap_is_a_loop(groups, batch_groups):
    specs = ("NHC", "HIO", "NCH")
    left, right = (2, 5, 4), (3, 4 // groups, 6)

    def convolved(x, kernel):
        return lax.conv_general_dilated(
            x,
            kernel,
            (2,),
            ((1, 1),),
            dimension_numbers=specs,
            feature_group_count=groups,
            batch_group_count=batch_groups,
        )

    for in_left, in_right in itertools.product([None, 0, 1, 2, 3], repeat=2):
        if in_left is in_right is None:
            continue
        x = normal(*left) if in_left is None else normal(*left[:in_left], 3, *left[in_left:])
        kernel = normal(*right) if in_right is None else normal(*right[:in_right], 3, *right[in_right:])
        xs = [x] * 3 if in_left is None else np.moveaxis(x, in_left, 0)
        kernels = [kernel] * 3 if in_right is None else np.moveaxis(kernel, in_right, 0)
        want = np.stack([np.asarray(convolved(a, b)) for a, b in zip(xs, kernels, strict=True)])
        close(weft.vmap(convolved, (in_left, in_right))(x, kernel), want)


def test_an_empty_batch_under_vmap():
    result = weft.vmap(lambda x, k: lax.conv(x, k, (1,), "SAME"))(
        np.zeros((0, 1, 2, 4), np.float32), np.zeros((0, 3, 2, 2), np.float32)
    )
    assert result.shape == (0, 1, 3, 4)


def test_dtypes():
    short = lax.conv(
        normal(1, 8, 9, dtype=ml_dtypes.bfloat16), normal(2, 8, 3, dtype=ml_dtypes.bfloat16), (1,), "VALID"
    )
    assert short.dtype == ml_dtypes.bfloat16
    x, k = np.full((1, 2, 4), 100, np.int8), np.full((1, 2, 2), 100, np.int8)
    assert np.asarray(lax.conv(x, k, (1,), "VALID", preferred_element_type=np.int32)).tolist() == [[[40000] * 3]]
    assert np.asarray(lax.conv(x, k, (1,), "VALID")).tolist() == [[[np.array(40000).astype(np.int8).item()] * 3]]
    with pytest.raises(TypeError, match="one dtype"):
        lax.conv(normal(1, 2, 4), x[:, :, :2], (1,), "VALID")
    with pytest.raises(TypeError, match="int32"):
        lax.conv(normal(1, 2, 4), normal(1, 2, 2), (1,), "VALID", preferred_element_type=np.int32)


def test_a_wider_result_differentiates():
    x, k = normal(1, 2, 5, dtype=ml_dtypes.bfloat16), normal(3, 2, 2, dtype=ml_dtypes.bfloat16)
    out, pullback = weft.vjp(lambda a, b: lax.conv(a, b, (1,), "VALID", preferred_element_type=np.float32), x, k)
    assert out.dtype == np.float32
    assert [c.dtype for c in pullback(np.ones(out.shape, np.float32))] == [ml_dtypes.bfloat16] * 2


# ------------------------------------------------------------------------------------------------------------ padding


def test_padding_by_name():
    sizes, windows, strides = (5, 6, 7, 1), (3, 2, 1, 4), (2, 1, 3, 2)
    assert padtype_to_pads(sizes, windows, strides, "SAME") == [(1, 1), (0, 1), (0, 0), (1, 2)]
    assert padtype_to_pads(sizes, windows, strides, "same_lower") == [(1, 1), (1, 0), (0, 0), (2, 1)]
    assert padtype_to_pads(sizes, windows, strides, "VALID") == [(0, 0)] * 4
    with pytest.raises(ValueError, match="SAME_LOWER"):
        padtype_to_pads(sizes, windows, strides, "FULL")


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("window", [1, 2, 3, 5])
def test_transposed_convolution_undoes_sizes_and_is_the_gradient(stride, window):
    specs = ("NHC", "HIO", "NHC")
    kernel = normal(window, 2, 3)
    for padding in ("SAME", "VALID"):
        size = stride * 4 if padding == "SAME" else stride * 3 + max(window, stride)
        x = normal(1, size, 2)

        def forward(a, padding=padding):
            return lax.conv_general_dilated(a, kernel, (stride,), padding, dimension_numbers=specs)

        out, pullback = weft.vjp(forward, x)
        cotangent = normal(*out.shape, seed=1)
        back = lax.conv_transpose(cotangent, kernel, (stride,), padding, dimension_numbers=specs, transpose_kernel=True)
        assert back.shape == x.shape
        if padding == "VALID" or window >= stride:
            close(back, pullback(cotangent)[0])
        assert lax.conv_transpose_shape_tuple(out.shape, (window, 3, 2), (stride,), padding, specs) == back.shape[
            :2
        ] + (2,)
        assert lax.conv_general_shape_tuple(x.shape, kernel.shape, (stride,), padding, specs) == out.shape


def test_transposed_convolution_with_the_forward_padding():
    x, kernel = normal(1, 6, 2), normal(3, 2, 2)
    specs = ("NHC", "HIO", "NHC")
    out, pullback = weft.vjp(lambda a: lax.conv_general_dilated(a, kernel, (1,), ((1, 0),), dimension_numbers=specs), x)
    cotangent = normal(*out.shape, seed=1)
    back = lax.conv_transpose(cotangent, kernel, (1,), ((1, 0),), transpose_kernel=True, use_consistent_padding=True)
    close(back, pullback(cotangent)[0])


# ---------------------------------------------------------------------------------------------------- patches, places


def test_patches_are_the_windows():
    x = normal(2, 3, 5, 4)
    got = np.asarray(lax.conv_general_dilated_patches(x, (2, 3), (1, 1), "VALID"))
    view = np.lib.stride_tricks.sliding_window_view(x, (2, 3), (2, 3))
    close(got, np.moveaxis(view, (4, 5), (2, 3)).reshape(2, 18, 4, 2))


def test_a_local_convolution_with_equal_kernels_is_a_convolution():
    x, kernel = normal(2, 5, 4, 3), normal(2, 3, 3, 6)
    specs = ("NHWC", "HWIO", "NWHC")
    want = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=specs)
    flat = np.transpose(kernel, (2, 0, 1, 3)).reshape(1, 1, 18, 6)
    local = np.broadcast_to(flat, (5, 4, 18, 6))
    close(lax.conv_general_dilated_local(x, local, (1, 1), "SAME", (2, 3), dimension_numbers=specs), want)


# ----------------------------------------------------------------------------------------------------- names, messages


def test_dimension_numbers_by_name():
    numbers = lax.conv_dimension_numbers((1, 2, 3, 4), (1, 2, 3, 4), ("NHWC", "HWIO", "NWHC"))
    assert numbers == ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 2, 1))
    assert lax.conv_general_permutations(("NHWC", "WHIO", "NHWC"))[0] == (0, 3, 2, 1)
    assert lax.conv_dimension_numbers((1, 2, 3), (1, 2, 3), numbers) is numbers


@pytest.mark.parametrize(
    ("left", "right", "options", "message"),
    [
        ((1, 2, 4), (1, 3, 2), {}, "a kernel for 3"),
        ((1, 2, 4), (1, 2, 2, 1), {}, "one rank"),
        ((1, 2, 4), (1, 2, 0), {}, "without elements"),
        ((1, 2, 4), (1, 2, 2), {"window_strides": (0,)}, "positive integer"),
        ((1, 2, 4), (1, 2, 2), {"window_strides": (1, 1)}, "1 spatial"),
        ((1, 2, 4), (1, 2, 2), {"padding": ((0, 0), (1, 1))}, "2 pairs"),
        ((1, 2, 4), (1, 2, 2), {"padding": (1,)}, "pairs"),
        ((1, 2, 4), (1, 2, 2), {"padding": ((-3, -2),)}, "crops more"),
        ((1, 2, 4), (1, 2, 2), {"lhs_dilation": (2,)}, "conv_transpose"),
        ((1, 3, 4), (2, 1, 2), {"feature_group_count": 2}, "3 features"),
        ((1, 2, 4), (3, 1, 2), {"feature_group_count": 2}, "3 output features"),
        ((3, 2, 4), (2, 2, 2), {"batch_group_count": 2}, "batch of 3"),
        ((2, 2, 4), (2, 1, 2), {"batch_group_count": 2, "feature_group_count": 2}, "at most one"),
        ((1, 2, 4), (1, 2, 2), {"dimension_numbers": ("NCH", "OIH")}, "three parts"),
        ((1, 2, 4), (1, 2, 2), {"dimension_numbers": ("NCHW", "OIHW", "NCHW")}, "names 4 dimensions"),
        ((1, 2, 4), (1, 2, 2), {"dimension_numbers": ("NCH", "OIH", "NCW")}, "same spatial"),
        ((1, 2, 4), (1, 2, 2), {"dimension_numbers": ("NCH", "OIH", "NXH")}, "'C' once"),
    ],
)
def test_errors_say_what_does_not_fit(left, right, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        lax.conv_general_dilated(
            normal(*left), normal(*right), **{"window_strides": (1,), "padding": "SAME", **options}
        )


def test_the_canonical_form():
    plain = {"window_strides": (2,), "padding": ((1, 0),), "lhs_dilation": (1,), "rhs_dilation": (2,)}
    numbers = ConvDimensionNumbers((0, 2, 1), (2, 1, 0), (0, 2, 1))
    x, kernel = array_type((3, 8, 4), np.dtype(np.float16)), array_type((3, 2, 6), np.dtype(np.float16))
    plan = primitive.canonical(x, kernel, dimension_numbers=numbers, feature_group_count=2, **plain)
    assert (plan.batch, plan.groups, plan.in_features, plan.out_features) == (3, 2, 2, 3)
    assert (plan.windows[0].extent, plan.windows[0].padded, plan.windows[0].count) == (5, 9, 3)
    assert (plan.compute, plan.result, plan.shape) == (np.float32, np.float16, (3, 3, 6))

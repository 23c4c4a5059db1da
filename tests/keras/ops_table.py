# ruff: noqa: E501
"""Sample calls of every operation of `weft.keras.ops`. `tests/keras/test_ops.py` runs them eagerly, compiled and on
symbolic tensors; `tests/peer/test_keras_ops.py` compares them with Keras."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

_random = np.random.RandomState(0)
_matrix = _random.uniform(-2, 2, (3, 4)).astype("float32")
_square = _random.uniform(-1, 1, (2, 3, 3)).astype("float32")
_nan = _matrix.copy()
_nan[0, 1] = _nan[2, 3] = np.nan

# What the calls below are written with.
NAMES: dict[str, Any] = {
    "np": np,
    "X": _matrix,
    "Y": _random.uniform(-2, 2, (3, 4)).astype("float32"),
    "P": _random.uniform(0.1, 0.9, (3, 4)).astype("float32"),
    "H": _matrix.astype("float16"),
    "I": _random.randint(-9, 9, (3, 4)).astype("int32"),
    "J": _random.randint(1, 9, (3, 4)).astype("int32"),
    "U": _random.randint(0, 200, (3, 4)).astype("uint8"),
    "B": _random.uniform(size=(3, 4)) > 0.5,
    "C": (_matrix + 1j * _matrix[::-1]).astype("complex64"),
    "N": _nan,
    "V": _random.uniform(-2, 2, 5).astype("float32"),
    "W": _random.uniform(-2, 2, 3).astype("float32"),
    "K": _random.randint(0, 5, 6).astype("int32"),
    "S": _square,
    "D": np.matmul(_square, np.swapaxes(_square, -1, -2)) + np.eye(3, dtype="float32"),
    "L": np.tril(_square) + 2 * np.eye(3, dtype="float32"),
    "R": _random.uniform(-1, 1, (2, 3)).astype("float32"),
    "Z": _random.uniform(-1, 1, (2, 8, 3)).astype("float32"),
    "IMAGES": _random.uniform(0, 1, (2, 6, 5, 3)).astype("float32"),
    "BYTES": _random.randint(0, 255, (2, 6, 5, 3)).astype("uint8"),
    "VOLUMES": _random.uniform(0, 1, (1, 4, 4, 4, 2)).astype("float32"),
    "KERNEL": _random.uniform(-1, 1, (3, 2, 3, 4)).astype("float32"),
    "DEPTHWISE": _random.uniform(-1, 1, (3, 3, 3, 2)).astype("float32"),
    "POINTWISE": _random.uniform(-1, 1, (1, 1, 6, 4)).astype("float32"),
    "TRANSPOSED": _random.uniform(-1, 1, (3, 2, 4, 3)).astype("float32"),
    "Q": _random.uniform(-1, 1, (2, 5, 4, 3)).astype("float32"),
    "SIGNAL": _random.uniform(-1, 1, (2, 40)).astype("float32"),
}

# One operation a line: its name, a colon, and its calls, divided by `;`.
_UNARY = (
    "abs absolute arcsinh arctan ceil conj conjugate copy cos cosh deg2rad exp exp2 expm1 fabs floor i0 isfinite isinf "
    "isnan isneginf isposinf isreal imag negative rad2deg real sign signbit sin sinc sinh square tan tanh trunc cbrt "
    "angle erfc hard_silu hard_swish log_sigmoid relu6 selu hard_sigmoid softplus softsign sparse_plus "
    "sparse_sigmoid tanh_shrink logical_not hard_tanh relu celu elu gelu leaky_relu hard_shrink soft_shrink squareplus"
)
_ON_POSITIVE = "arccos arcsin arctanh log log10 log1p log2 reciprocal rsqrt sqrt erfinv sigmoid silu swish"
_BINARY = (
    "add divide equal fmax fmin greater greater_equal less less_equal logical_and logical_or logical_xor maximum minimum "
    "multiply not_equal subtract true_divide divide_no_nan"
)
_INTEGERS = "bitwise_and bitwise_or bitwise_xor gcd lcm"
_REDUCTIONS = "all amax amin any argmax argmin max mean median min prod ptp std sum var count_nonzero"
_NAN_REDUCTIONS = "nanmax nanmean nanmedian nanmin nanprod nanstd nansum nanvar nanargmax nanargmin"

TABLE = """
allclose: X, X; X, Y
append: X, Y; X, Y, axis=1
arange: 5; 1, 7, 2; 0.0, 1.0, 0.25; 3.5; 1, 4, dtype="float16"
arccosh: J
arctan2: X, Y; H, 2.0; I, J
argpartition: X, 2; X, 1, axis=0
argsort: X; X, axis=0; X, axis=None
array: X; [[1, 2], [3, 4]]; X, dtype="int32"
array_split: X, 3, axis=1; X, 2
average: X; X, axis=1; X, axis=1, weights=[1.0, 2.0, 0.5, 1.0]; I, axis=0
bartlett: 5; 8
bincount: K; K, weights=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]; K, minlength=9; np.stack([K, K])
bitwise_invert: I; B
bitwise_left_shift: I, J; I, 2
bitwise_not: I; B
bitwise_right_shift: I, J; I, 2
blackman: 5
broadcast_to: W[:, None], (2, 3, 4); 1.0, (2,)
cast: X, "int32"; I, "float16"; X, "bool"
cdist: Q[0], Q[1]
cholesky: D; D, upper=True
cholesky_inverse: L[0]; L[0].T, upper=True
clip: X, -0.5, 0.5; I, 0, 3; H, -1.0, 1.0; I, 0.5, 2.0; X, W[:, None], 1.0
concatenate: [X, Y]; [X, I], axis=1; (X, H), axis=-1
conv: IMAGES, KERNEL; IMAGES, KERNEL, 2, "same"; IMAGES, KERNEL, 1, "same", dilation_rate=2; \
np.moveaxis(IMAGES, -1, 1), KERNEL, data_format="channels_first"; Z, Z[0, :3, :, None]; VOLUMES, VOLUMES[0, :2, :2, :2, :, None]; \
IMAGES, KERNEL[:, :, :1, :3], (2, 1)
conv_transpose: IMAGES, TRANSPOSED; IMAGES, TRANSPOSED, 2, "same"; IMAGES, TRANSPOSED, (3, 2), "valid"; \
IMAGES, TRANSPOSED, 2, "same", 1; IMAGES, TRANSPOSED, 2, "valid", 1; IMAGES, TRANSPOSED, 1, "same", dilation_rate=2; \
np.moveaxis(IMAGES, -1, 1), TRANSPOSED, 2, data_format="channels_first"; Z, Z[0, :3, None, :], 4, "same"; Z, Z[0, :5, None, :], 2, "same", 0
corrcoef: X
correlate: V, W; V, W, mode="same"; V, W, mode="full"; K, K[:3]
cross: X[:, :3], Y[:, :3]; X[:, :2], Y[:, :3]
ctc_decode: Z, [8, 5]; Z, [8, 5], merge_repeated=False
ctc_loss: [[1, 2, 1], [2, 2, 0]], Z, [3, 2], [8, 7]; [[1, 0, 1], [0, 0, 1]], Z, [3, 2], [8, 7], mask_index=2
cumprod: X; X, axis=1; I, axis=0
cumsum: X; X, axis=1; B, axis=0; I, axis=0, dtype="float32"
depth_to_space: np.arange(32.0, dtype="float32").reshape(1, 2, 2, 8), 2; \
np.arange(32.0, dtype="float32").reshape(1, 8, 2, 2), 2, "channels_first"
depthwise_conv: IMAGES, DEPTHWISE; IMAGES, DEPTHWISE, 2, "same"; IMAGES, DEPTHWISE, 1, "same", dilation_rate=2; \
np.moveaxis(IMAGES, -1, 1), DEPTHWISE, 1, "valid", "channels_first"; Z, Z[0, :2, :, None]
det: S
diag: W; X; X, 1
diagflat: R; W, -1
diagonal: X; S, 1, 1, 2
diff: X; X, 2; X, axis=0
digitize: X, [-1.0, 0.0, 1.0]; I, [-3, 3]
divide_no_nan: X, I
dot: X, Y.T; W, W; X, 2.0
dot_product_attention: Q, Q, Q; Q, Q[:, :3], Q[:, 1:4], is_causal=True; Q, Q, Q, scale=0.3; \
Q, Q, Q, mask=np.tril(np.ones((1, 1, 5, 5), bool)); Q, Q[:, :, :2], Q[:, :, 2:]; Q, Q, Q, bias=np.ones((2, 4, 5, 5), "float32")
dsplit: IMAGES, [1, 2]
dstack: [X, Y]; [W, W]
eigh: D
einsum: "ij,kj->ik", X, Y; "bij,bjk->bik", S, D; "ij->j", I; "...i,...i", X, Y
empty: (2, 3)
empty_like: X
erf: X; H
expand_dims: X, 1; X, (0, 3)
extract_sequences: SIGNAL, 8, 4
eye: 3; 3, 4, 1; 2, dtype="int32"
fft: (X, Y)
fft2: (X, Y)
flip: X; X, axis=1; X, axis=(0, 1)
fliplr: X
flipud: X
floor_divide: X, Y; I, J; I, 2; X, 0.5
fmod: X, Y; I, J
fold: np.arange(72.0, dtype="float32").reshape(2, 4, 9), (4, 4), 2; \
np.arange(72.0, dtype="float32").reshape(2, 4, 9), (4, 4), 2, 1, 1, 2
full: (2, 3), 7; (2,), 1.5, "int32"; (2, 3), W
full_like: X, 3; I, 2.5
gelu: X, approximate=False; X, approximate=True
geomspace: 1.0, 100.0, 5; 1, 100, 4, endpoint=False
get_item: X, 1; X, (slice(None), slice(1, 3)); X, (..., None); X, ([0, 2], [1, 1])
glu: X; R[:, :2], axis=0
hamming: 6
hanning: 6
hard_shrink: X, threshold=1.0
heaviside: X, 0.5; I, J
histogram: V; V, 4; V, 4, (-1.0, 1.0)
hsplit: X, 2
hstack: [X, Y]; [W, V]
hypot: X, Y; I, J
identity: 3; 2, dtype="int32"
ifft2: (X, Y)
in_top_k: [1, 0, 3], X, 2; [0, 0, 0], np.ones((3, 4), "float32"), 1
inner: X, Y; W, W
inv: D
irfft: (X, Y); (X, Y), 5
isclose: X, X; X, X + 1e-6; N, N, equal_nan=True
isin: I, J; I, [1, 2], invert=True
istft: (Q[0], Q[1]), 4, 2, 4; (Q[:, :, 0], Q[:, :, 1]), 4, 2, 4, length=5; (Q[:, :, 0], Q[:, :, 1]), 4, 1, 4, window="hamming"; \
(Q[:, :, 0], Q[:, :, 1]), 3, 2, 4, center=False, window=np.ones(3)
kaiser: 6, 3.0
kron: R, X[:2, :2]
layer_normalization: X; X, W[:1].repeat(4), V[:4]; IMAGES, axis=(1, 2); H; X, epsilon=0.1
lcm: I, J
ldexp: X, J; I, J
leaky_relu: X, negative_slope=0.4
left_shift: I, J
linspace: 0.0, 1.0, 5; 0, 10, 4, endpoint=False; W, 2 * W, 3, axis=1; 0, 10, 5, dtype="int32"
log_softmax: X; X, axis=0; X, axis=(0, 1)
logaddexp: X, Y; H, 2.0; I, J
logaddexp2: X, Y; I, J
logdet: D
logspace: 0.0, 2.0, 5; 0, 4, 5, base=2.0
logsumexp: X; X, axis=1; X, axis=0, keepdims=True
lstsq: X.T, V[:4]; X, W
lu_factor: S
matmul: X, Y.T; S, D; I, J.T; W, X; U, U.T; H, X.T
matrix_rank: S; X, 0.1
max: X, axis=1, initial=0.5; I, axis=(0, 1)
max_pool: IMAGES, (2, 2), (2, 2); IMAGES, (3, 2), 1, "same"; np.moveaxis(IMAGES, -1, 1), 2, 2, data_format="channels_first"; Z, 3, 2; U.reshape(1, 3, 4, 1), 2, 1
average_pool: IMAGES, (2, 2), (2, 2); IMAGES, (3, 2), 1, "same"; np.moveaxis(IMAGES, -1, 1), 2, 2, data_format="channels_first"; Z, 3, 2
adaptive_average_pool: Z, 3; IMAGES, (3, 2); np.moveaxis(IMAGES, -1, 1), 2, "channels_first"
adaptive_max_pool: Z, 3; IMAGES, (3, 2); np.moveaxis(IMAGES, -1, 1), 2, "channels_first"
batch_normalization: X, V[:4], P[0], -1; X, V[:4], P[0], 1, P[1], P[2], 0.1; IMAGES, W, P[:, 0], 3
binary_crossentropy: B.astype("float32"), P; B.astype("float32"), X, from_logits=True; P, B.astype("float32")
categorical_crossentropy: P, P[::-1]; P, X, from_logits=True; P, P[::-1], axis=0
sparse_categorical_crossentropy: [1, 0, 3], P; [1, 0, 3], X, from_logits=True; [[1], [0], [9]], P
meshgrid: W, V; W, V, indexing="ij"
min: X, axis=1, initial=-0.5; I, axis=(0, 1)
mod: X, Y; I, J; I, 3
moments: X, 0; X, [0, 1], keepdims=True; H, 1; IMAGES, (1, 2)
moveaxis: IMAGES, 3, 1; IMAGES, (0, 1), (2, 3)
multi_hot: [0, 2], 4; [[0, 2], [1, 1]], 4; [[0, 2]], 4, dtype="int32"
nan_to_num: N; N, nan=7.0
nancumprod: N, axis=1
nancumsum: N, axis=1
nanpercentile: N, 30.0; N, [10.0, 50.0], axis=1
nanquantile: N, 0.3; N, [0.1, 0.5], axis=1, keepdims=True
ndim: X; 3.0
nextafter: X, Y
nonzero: B; X
norm: X; X, axis=1; X, ord=1, axis=0; X, ord="fro"; S, ord=2, axis=(1, 2); X, ord=np.inf; X, axis=1, keepdims=True; X, ord=3, axis=1
normalize: X; X, axis=0; X, order=1; X, order=3
one_hot: [1, 0, 2], 3; [[1], [7]], 3; [1, 0], 3, axis=0; [1, 0], 3, dtype="bool"
ones: (2, 3); 4, "int32"
ones_like: X; I; X, dtype="int32"
outer: W, V; X, W
pad: X, 1; X, ((1, 0), (0, 2)); X, 1, "reflect"; X, ((1, 1), (0, 0)), constant_values=3.0; X, 2, "symmetric"
percentile: X, 30.0; X, [10.0, 50.0], axis=1; X, 30.0, method="nearest"; X, 50.0, axis=(0, 1), keepdims=True
pinv: S; X
polar: P, X
power: P, X; I, 2; X, 2; 2, X
prod: X, axis=1, dtype="float16"; U, axis=1; B
psnr: X, Y, 2.0
qr: D; X, mode="complete"
quantile: X, 0.3; X, [0.1, 0.5], axis=1; X, 0.3, axis=0, method="lower"; I, 0.5
ravel: X
rearrange: X, "a b -> b a"; X, "a (b c) -> a b c", c=2; IMAGES, "n h w c -> n (h w) c"; X, "a b -> (a b)"
reciprocal: X
repeat: X, 2; X, 2, axis=1; X, [1, 2, 0], axis=0
reshape: X, (4, 3); X, (-1, 2); X, -1
rfft: SIGNAL; SIGNAL, 16
right_shift: I, J
rms_normalization: X; X, V[:4]; IMAGES, axis=(1, 2); H; X, epsilon=0.1
roll: X, 1; X, (1, 2), axis=(0, 1); X, -1, axis=1
rot90: X; X, 3; IMAGES, 1, (1, 2)
round: 3 * X; 100 * X, -1; X, 2; I, -1
saturate_cast: 300 * X, "uint8"; X * 1e10, "int32"; I, "uint8"; X * 1e6, "float16"; U, "int8"; B, "int8"
scatter: [[0], [2], [0]], [1.0, 2.0, 3.0], (4,); [[0, 1], [1, 0]], [1, 2], (2, 3); [[1]], [[1.0, 2.0]], (2, 2)
scatter_update: X, [[0, 1], [2, 3]], [5.0, 6.0]; X, [[1]], [[1.0, 2.0, 3.0, 4.0]]; X, [[0, 1], [0, 1]], [5.0, 6.0], "add"; \
X, [[0, 1]], [5.0], "max"; X, [[0, 1]], [5.0], "min"; X, [[0, 1]], [5.0], "mul"
searchsorted: np.sort(V), X; np.sort(V), V, side="right"
segment_max: X, [0, 0, 2], 4; X, [0, 1, 1], 2, sorted=True
segment_min: X, [0, 0, 2], 4
segment_prod: X, [0, 0, 2], 4
segment_sum: X, [0, 0, 2], 4; I, [2, 1, 2], 3
select: [B, X > 0], [X, Y], 9.0; [B], [I], 0
separable_conv: IMAGES, DEPTHWISE, POINTWISE; IMAGES, DEPTHWISE, POINTWISE, 2, "same"
shape: X
sign: I
size: X; 3.0
slice: X, (1, 2), (2, 2); X, np.array([0, 3]), (3, 2)
slice_update: X, (1, 2), np.ones((2, 2), "float32"); X, (1, 2), [[7.0]]
slogdet: S
soft_shrink: X, threshold=1.0
softmax: X; X, axis=0; X, axis=(0, 1); H
solve: D, S; D[0], W
solve_triangular: L, S, lower=True; np.swapaxes(L, -1, -2), R
sort: X; X, axis=0; I
space_to_depth: np.arange(32.0, dtype="float32").reshape(1, 4, 4, 2), 2; \
np.arange(32.0, dtype="float32").reshape(1, 2, 4, 4), 2, "channels_first"
sparsemax: X; X, axis=0
split: X, 2, axis=1; X, [1, 2]; X, (1,), axis=1
square: I
squareplus: X, b=1.0
squeeze: X[:, :1]; X[:1], axis=0; W[None, :, None], axis=(0, 2)
stack: [X, Y]; [X, I], axis=1; [X, Y], axis=-1
stft: SIGNAL, 8, 4, 8; SIGNAL, 6, 4, 8, window="hamming"; SIGNAL, 6, 4, 8, window=None, center=False; SIGNAL, 5, 4, 8, window=np.ones(5)
stop_gradient: X
svd: S, compute_uv=False; X, full_matrices=False, compute_uv=False
swapaxes: IMAGES, 1, 3
take: X, [0, 2, -1]; X, [[0], [1]], axis=1; X, 2, axis=0; I, K, axis=None
take_along_axis: X, [[0, 1], [2, 3], [1, 1]], axis=1; X, [5, 3], axis=None
tensordot: X, Y, 2; X, Y.T, 1; IMAGES, X, axes=[[3], [0]]
threshold: X, 0.5, -1.0
tile: X, 2; X, (2, 1, 2)
top_k: X, 2; V, 3
trace: X; S, 1, 1, 2; I
transpose: X; IMAGES, (3, 0, 2, 1)
trapezoid: X; X, axis=0, dx=0.5; X, [0.0, 1.0, 3.0, 4.0]
tri: 3; 3, 4, 1; 2, dtype="bool"
tril: X; S, -1
triu: X; S, 1
unfold: np.arange(32.0, dtype="float32").reshape(1, 2, 4, 4), 2; np.arange(32.0, dtype="float32").reshape(1, 2, 4, 4), (2, 3), 1, 1, 2
unique: K; K, return_index=True, return_inverse=True, return_counts=True
unravel_index: [5, 7], (3, 4)
unstack: X; X, axis=1
vander: W; W, 4, increasing=True
vdot: X, Y; W, W
view: X, "int32"; X; U, "int8"
view_as_complex: X[:, :2]
view_as_real: C
vsplit: IMAGES[0], 2
vstack: [X, Y]; [W, W]
where: B, X, Y; B, I, 0; B, 1, 2.5
zeros: (2, 3); 4, "int32"
zeros_like: X; I; X, dtype="int32"
image.affine_transform: IMAGES, [[1.0, 0.1, 0.5, 0.0, 0.9, 0.2, 0.0, 0.0]] * 2; \
IMAGES, [[1.0, 0.1, 0.5, 0.0, 0.9, 0.2, 0.0, 0.001]] * 2, "nearest", "reflect"; IMAGES[0], [1.0, 0.0, 1.5, 0.0, 1.0, -2.0, 0.0, 0.0], fill_mode="wrap"; \
IMAGES, [[1.0, 0.1, 0.5, 0.0, 0.9, 0.2, 0.0, 0.0]] * 2, fill_mode="mirror"; np.moveaxis(IMAGES, -1, 1), [[1.0, 0.1, 0.5, 0.0, 0.9, 0.2, 0.0, 0.0]] * 2, fill_mode="nearest", data_format="channels_first"
image.crop_images: IMAGES, 1, 1, 1, 1; IMAGES, 1, 1, target_height=2, target_width=2; IMAGES[0], top_cropping=1, bottom_cropping=0, left_cropping=1, right_cropping=0
image.extract_patches: IMAGES, 2; IMAGES, (3, 2), 1, padding="same"; np.moveaxis(IMAGES, -1, 1), 2, data_format="channels_first"; IMAGES, 2, dilation_rate=2, strides=1; IMAGES[0], 3
image.extract_patches_3d: VOLUMES, 2; VOLUMES, (2, 3, 2), 1, padding="same"
image.gaussian_blur: IMAGES[..., :1]; IMAGES[..., :1], (5, 3), (2.0, 0.5); np.moveaxis(IMAGES, -1, 1), data_format="channels_first"; IMAGES[0, ..., :1]
image.hsv_to_rgb: IMAGES; np.moveaxis(IMAGES, -1, 1), "channels_first"
image.map_coordinates: X, [[0.5, 1.0, 2.5], [1.0, 9.0, -0.5]], 1; X, [[0.5, 1.0, 2.5], [1.0, 9.0, -0.5]], 0, "reflect"; X, [[0.5, 5.0, 2.5], [1.0, 9.0, -0.5]], 1, "nearest"; X, [[0.5, 5.0, -2.5], [1.0, 9.0, -0.5]], 1, "wrap"; X, [[0.5, 5.0, -2.5], [1.0, 9.0, -0.5]], 1, "mirror"; X, [[0.5, 5.0], [1.0, 1.0]], 1, "constant", 7.0
image.pad_images: IMAGES, 1, 0, 0, 1; IMAGES, 1, 0, target_height=8, target_width=6; IMAGES[0], 1, 2, 3, 4
image.perspective_transform: IMAGES, [[[0.0, 0.0], [0.0, 4.0], [5.0, 0.0], [5.0, 4.0]]] * 2, [[[0.0, 0.0], [0.0, 4.0], [5.0, 0.0], [4.0, 3.0]]] * 2; IMAGES[0], [[0.0, 0.0], [0.0, 4.0], [5.0, 0.0], [5.0, 4.0]], [[1.0, 0.0], [0.0, 3.0], [5.0, 0.0], [4.0, 3.0]], "nearest", 3.0
image.resize: IMAGES, (4, 7); IMAGES, (3, 3), "nearest"; IMAGES, (8, 9), "bicubic"; IMAGES, (3, 2), antialias=True; IMAGES, (4, 8), crop_to_aspect_ratio=True; IMAGES, (4, 8), pad_to_aspect_ratio=True, fill_value=0.5; IMAGES[0], (4, 4), "lanczos3"; np.moveaxis(IMAGES, -1, 1), (4, 4), data_format="channels_first"; BYTES, (4, 4)
image.rgb_to_grayscale: IMAGES; BYTES; np.moveaxis(IMAGES, -1, 1), "channels_first"
image.rgb_to_hsv: IMAGES; np.moveaxis(IMAGES, -1, 1), "channels_first"
image.scale_and_translate: X, (4, 5), [0.5, 1.5], [0.0, 1.0], (0, 1), "linear"; X, (4, 5), [0.5, 1.5], [0.0, 1.0], (0, 1), "cubic", False
image.sobel_edges: IMAGES; np.moveaxis(IMAGES, -1, 1), "channels_first"
image.ssim: IMAGES, IMAGES * 0.5, filter_size=3; IMAGES[0], IMAGES[1], 2.0, 5, 1.0
""" + "".join(
    [f"{name}: X; H; I\n" for name in _UNARY.split()]
    + [f"{name}: P; P.astype('float16')\n" for name in _ON_POSITIVE.split()]
    + [f"{name}: X, Y; I, J; X, W[:, None]; H, 2.0\n" for name in _BINARY.split()]
    + [f"{name}: I, J; U, U\n" for name in _INTEGERS.split()]
    + [f"{name}: X; X, axis=1; I, axis=0\n" for name in _REDUCTIONS.split()]
    + [f"{name}: N; N, axis=1\n" for name in _NAN_REDUCTIONS.split()]
)


class Case(NamedTuple):
    """A call of an operation."""

    name: str
    text: str

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Its positional and named arguments."""
        return eval(f"_call({self.text})", {**NAMES, "_call": lambda *args, **kwargs: (args, kwargs)})

    def __str__(self) -> str:
        return f"{self.name}({self.text})"


def cases() -> Iterator[Case]:
    """All calls of the table."""
    for line in TABLE.strip().splitlines():
        name, _, calls = line.partition(": ")
        yield from (Case(name, text.strip()) for text in calls.split(";"))

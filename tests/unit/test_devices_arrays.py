"""Arrays: NumPy and DLPack, copies, pickles, deletion, printing, and devices."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import errors

EXAMPLES = {
    "vector": lambda: wnp.arange(3.0),
    "weak scalar": lambda: wnp.asarray(1.0),
    "bfloat16": lambda: wnp.ones(2, "bfloat16"),
    "empty": lambda: wnp.ones((0, 2)),
    "boolean": lambda: wnp.array([True, False]),
    "complex": lambda: wnp.array([1 + 2j]),
}
each = pytest.mark.parametrize("name", EXAMPLES)


def names_this_file(error: BaseException) -> bool:
    return "  at        test_devices_arrays.py:" in str(error)


@each
@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)), lambda x: x.copy()]
)
def test_duplicates_have_the_type_and_outlive_the_original(name: str, duplicate) -> None:
    x = EXAMPLES[name]()
    expected = np.array(x)
    twin = duplicate(x)
    assert weft.typeof(twin) == weft.typeof(x)
    x.delete()
    assert np.array_equal(twin, expected)


def test_keys_are_pickled_too() -> None:
    key = weft.random.key(3)
    assert np.array_equal(weft.random.key_data(pickle.loads(pickle.dumps(key))), weft.random.key_data(key))


# -- NumPy ------------------------------------------------------------------------------------------------------------


@each
def test_to_numpy(name: str) -> None:
    x = EXAMPLES[name]()
    view = np.asarray(x)
    assert view.dtype == x.dtype and view.shape == x.shape and not view.flags.writeable
    assert np.shares_memory(view, np.asarray(x)) or not view.size
    assert np.array(x).flags.writeable


def test_copies_only_where_asked_for() -> None:
    x = wnp.arange(3.0)
    mine = np.array(x)
    mine[0] = 7
    assert x.tolist() == [0.0, 1.0, 2.0]
    assert np.asarray(x, np.int32).dtype == np.int32
    assert np.shares_memory(np.array(x, copy=False), np.asarray(x))
    with pytest.raises(ValueError, match="copy"):
        np.array(x, dtype=np.int32, copy=False)
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(x)[0] = 1
    view = np.asarray(x)
    x.delete()
    assert view.tolist() == [0.0, 1.0, 2.0]


def test_numpy_arrays_are_copied() -> None:
    source = np.ones(3, np.float32)
    result = [
        wnp.array(source),
        weft.device_put(source),
        weft.jit(lambda x: x)(source),
        weft.lax.reshape(source, (3, 1)),
    ]
    source[0] = 7
    assert all(float(m.ravel()[0]) == 1.0 for m in result)


def test_narrowing_checks_numpy_values_wherever_they_come_in() -> None:
    assert wnp.asarray(np.arange(3)).dtype == np.int32
    for convert in (wnp.asarray, lambda x: weft.jit(lambda x: x)(x), lambda x: weft.lax.neg(x), weft.device_put):
        for value in (np.int64(2**40), np.array([2**40]), np.array([1e300])):
            with pytest.raises(errors.NarrowingOverflowError):
                convert(value)


def test_numpy_defers_in_operators() -> None:
    x = wnp.arange(3.0)
    for result in (np.ones(3, np.float32) + x, np.float32(2) * x, np.float64(2) - x):
        assert isinstance(result, weft.Array) and result.dtype == np.float32
    assert (x == np.arange(3.0)).tolist() == [True] * 3


# -- DLPack -----------------------------------------------------------------------------------------------------------


def test_dlpack_out_cannot_be_written() -> None:
    x = wnp.arange(3.0)
    out = np.from_dlpack(x)
    assert out.tolist() == [0.0, 1.0, 2.0] and not out.flags.writeable
    capsule_owner = np.from_dlpack(_Old(x))  # a consumer that knows no versions gets a buffer of its own
    assert not np.shares_memory(capsule_owner, np.asarray(x))
    assert tuple(map(int, x.__dlpack_device__())) == (1, 0)


class _Old:
    """Array as seen by consumers from before DLPack 1.0."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, *, stream=None, **new):
        return self.array.__dlpack__(stream=stream)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.bool_, np.complex64])
def test_dlpack_in(dtype) -> None:
    source = np.ones(3, dtype)
    result = wnp.from_dlpack(source)
    assert isinstance(result, weft.Array) and result.dtype == dtype and np.array_equal(result, source)
    assert np.array_equal(wnp.from_dlpack(result), result)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz"])
def test_dlpack_of_floats_that_numpy_has_not(dtype) -> None:
    x = wnp.arange(6.0).reshape(2, 3).astype(dtype)
    assert weft.dlpack.is_supported_dtype(x.dtype)
    for source in (x, _Old(x)):
        result = weft.dlpack.from_dlpack(source, copy=True)
        assert result.dtype == x.dtype and result.tolist() == x.tolist()
        assert wnp.from_dlpack(source).dtype == x.dtype
    assert weft.dlpack.from_dlpack(_Versioned(x)).unsafe_buffer_pointer() == x.unsafe_buffer_pointer()


class _Versioned(_Old):
    """Array of another library that knows versions of DLPack."""

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)


# -- deletion ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x + 1,
        lambda x: np.asarray(x),
        lambda x: weft.jit(lambda y: y)(x),
        lambda x: x.block_until_ready(),
        lambda x: float(x[0]),
    ],
)
def test_deleted_arrays_cannot_be_used(use) -> None:
    x = wnp.arange(3.0)
    x.delete()
    x.delete()
    assert x.is_deleted() and x.shape == (3,) and "deleted" in repr(x)
    with pytest.raises(errors.DonatedArrayError, match="deleted") as caught:
        use(x)
    assert isinstance(caught.value, RuntimeError) and names_this_file(caught.value)


# -- to Python --------------------------------------------------------------------------------------------------------


def test_conversion_to_python_numbers() -> None:
    assert (bool(wnp.float32(1)), int(wnp.float32(1.7)), float(wnp.int32(3)), complex(wnp.float32(2))) == (
        True,
        1,
        3.0,
        2,
    )
    assert [1, 2, 3][wnp.int32(1)] == 2 and list(range(wnp.int32(2))) == [0, 1]
    assert wnp.arange(3)[1].item() == 1 and wnp.arange(3).tolist() == [0, 1, 2]
    assert f"{wnp.float32(2.5):.3f} {wnp.int32(3):04d}" == "2.500 0003"


@pytest.mark.parametrize(
    ("use", "error", "text"),
    [
        (lambda: bool(wnp.arange(3)), ValueError, "ambiguous"),
        (lambda: float(wnp.ones(1)), TypeError, r"without dimensions\.\n.*\n  received  f32\[1\]"),
        (lambda: [1, 2][wnp.float32(1)], TypeError, r"integer array without dimensions"),
        (lambda: wnp.arange(3).__setitem__(0, 1), errors.ImmutableArrayError, r"x.at\[index\].set\(value\)"),
    ],
)
def test_conversion_errors(use, error, text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        use()
    assert names_this_file(caught.value)


def test_arrays_are_immutable_and_not_hashable() -> None:
    x = wnp.arange(3.0)
    y = x
    x += 1
    assert y.tolist() == [0.0, 1.0, 2.0] and x.tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)
    with pytest.raises(AttributeError):
        x.shape = (3, 1)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: wnp.arange(3.0), "Array([0., 1., 2.], dtype=float32)"),
        (lambda: wnp.asarray(1.0), "Array(1., dtype=float32, weak_type=True)"),
        (lambda: wnp.ones((2, 2)), "Array([[1., 1.],\n       [1., 1.]], dtype=float32)"),
        (lambda: wnp.ones((0, 3)), "Array([], shape=(0, 3), dtype=float32)"),
        (lambda: wnp.ones(2, "bfloat16"), "Array([1, 1], dtype=bfloat16)"),
        (lambda: wnp.arange(2000), "Array([   0,    1,    2, ..., 1997, 1998, 1999], dtype=int32)"),
    ],
)
def test_repr(make, text: str) -> None:
    assert repr(make()) == text


# -- devices ----------------------------------------------------------------------------------------------------------


def test_devices() -> None:
    device = weft.devices()[0]
    x = weft.device_put({"a": np.ones(3), "n": 3}, device)
    assert isinstance(x["a"], weft.Array) and x["n"].weak_type and x["a"].devices() == {device}
    assert x["a"].sharding.device_set == {device} and x["a"].is_fully_addressable
    assert weft.default_backend() == device.platform
    got = weft.device_get({"a": x["a"], "n": 3, "s": "text"})
    assert type(got["a"]) is np.ndarray and got["n"] == 3 and got["s"] == "text"
    assert weft.block_until_ready(x) is x
    with pytest.raises(ValueError, match="device or a sharding") as caught:
        weft.device_put(1.0, "gpu")
    assert names_this_file(caught.value)
    with pytest.raises(RuntimeError, match="Unknown backend 'tpu'"):
        weft.devices("tpu")


def test_traced_values_are_arrays() -> None:
    seen: list[bool] = []
    f = lambda x: (seen.append(isinstance(x, weft.Array)), x)[1]
    weft.jit(f)(1.0)
    weft.grad(f)(1.0)
    weft.vmap(f)(wnp.ones(2))
    assert seen == [True, True, True] and not isinstance(np.ones(2), weft.Array)

"""Dtypes: promotion against a stored table, canonical types, names, and checked conversion of values."""

import functools
import itertools
import pathlib
import pickle
import threading
import warnings

import ml_dtypes
import numpy as np
import pytest

from weft.base import conversion, dtypes
from weft.base.dtypes import DTYPES, ExtendedDtype, float0, prng_key
from weft.base.errors import InvalidInputTypeError, NarrowingOverflowError, TypePromotionError
from weft.base.settings import enable_x64, explicit_x64_dtypes, numpy_dtype_promotion

pytestmark = pytest.mark.tiny

WEAK = {"int*": int, "float*": float, "complex*": complex}
VALUES = {"int*": 1, "float*": 1.0, "complex*": 1j}
ROWS = (pathlib.Path(__file__).parents[1] / "data" / "promotion.txt").read_text().splitlines()
# An older ml_dtypes lacks the smallest types, and then so does Weft.
TABLE = [row.split() for row in ROWS if {*row.split()[:2]} <= {*DTYPES, *WEAK}]


class Weak:
    """Stands for a weakly typed array."""

    weak_type = True

    def __init__(self, name):
        self.dtype = np.dtype(name)


class Key(ExtendedDtype):
    type = prng_key
    name = "key<test>"
    storage = np.dtype((np.void, 8))


class scalar_class:
    dtype = np.dtype("float32")


def type_of(name):
    return WEAK.get(name) or DTYPES[name]


def value_of(name):
    return VALUES[name] if name in VALUES else np.ones(2, DTYPES[name])


def promoted(*args):
    try:
        found, weak = dtypes.result_type(*args, return_weak_type_flag=True)
    except TypePromotionError:
        return "error"
    return found.name + "*" * weak


def test_the_table_has_every_pair():
    names = [*DTYPES, *WEAK]
    assert {frozenset(row[:2]) for row in TABLE} == {frozenset(p) for p in itertools.product(names, repeat=2)}


@pytest.mark.parametrize(
    "column, mode, x64", [(2, "standard", 0), (3, "standard", 1), (4, "strict", 0), (5, "strict", 1)]
)
def test_promotion_is_as_in_the_table(column, mode, x64):
    wrong = []
    with numpy_dtype_promotion(mode), enable_x64(bool(x64)):
        for row in TABLE:
            a, b, want = row[0], row[1], row[column]
            for first, second in ((a, b), (b, a)):
                got = promoted(type_of(first), type_of(second)), promoted(value_of(first), value_of(second))
                if got != (want, want):
                    wrong.append((first, second, *got, want))
    assert not wrong


@pytest.mark.parametrize("x64", [False, True])
def test_promote_types_yields_64_bits_only_where_they_came_in(x64):
    with enable_x64(x64):
        for a, b, narrow, wide, *_ in TABLE:
            if wide == "error":
                with pytest.raises(TypePromotionError):
                    dtypes.promote_types(type_of(a), type_of(b))
                continue
            brought = wide.endswith("*") or any(name in WEAK or DTYPES[name].itemsize >= 8 for name in (a, b))
            want = (wide if x64 or brought else narrow).rstrip("*")
            assert dtypes.promote_types(type_of(a), type_of(b)).name == want, (a, b)
    with enable_x64(False):
        assert dtypes.promote_types("int32", "uint32") == np.int32
        assert dtypes.promote_types("int32", "int64") == np.int64


def test_promotion_of_three_does_not_depend_on_the_order():
    names = ["bool", "int8", "uint32", "int4", "float8_e5m2", "bfloat16", "float16", "float32", "complex64", *WEAK]
    for three in itertools.combinations(names, 3):
        results = {promoted(*map(type_of, order)) for order in itertools.permutations(three)}
        assert len(results) == 1, (three, results)


def test_of_a_weak_array_only_the_kind_counts():
    assert promoted(Weak("bfloat16")) == promoted(Weak("bfloat16"), Weak("bfloat16")) == "float32*"
    assert promoted(Weak("bfloat16"), np.int8(1)) == "float32*"
    assert promoted(Weak("bfloat16"), np.float16(1)) == "float16"
    assert promoted(Weak("int8"), 1.0) == "float32*"
    assert promoted(Weak("int8"), True) == "int32*"
    assert dtypes.dtype(Weak("bfloat16")) == dtypes.bfloat16


def test_promotion_errors_name_both_types_and_the_fix():
    with numpy_dtype_promotion("strict"), pytest.raises(TypePromotionError, match=r"(?s)int32 and float32.*astype"):
        dtypes.result_type(np.int32(1), np.float32(1))
    with pytest.raises(TypePromotionError, match=r"(?s)float8_e5m2 and Python complex.*astype"):
        dtypes.result_type(DTYPES["float8_e5m2"], 1j)
    with pytest.raises(TypePromotionError, match="key<test> and float32"):
        dtypes.promote_types(Key(), np.dtype("float32"))
    with pytest.raises(ValueError):
        dtypes.promote_types("S3", "S3")
    with pytest.raises(ValueError):
        dtypes.result_type()
    with pytest.raises(TypeError, match="dtype of"):
        dtypes.result_type(object())


@pytest.mark.parametrize("name", DTYPES)
def test_canonical_types_are_halved_64_bit_types(name):
    narrow = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}.get(name, name)
    for specifier in (name, DTYPES[name], DTYPES[name].type):
        assert dtypes.canonicalize_dtype(specifier) is DTYPES[narrow]
        with enable_x64(True):
            assert dtypes.canonicalize_dtype(specifier) is DTYPES[name]


def test_specifiers_of_all_sorts():
    assert dtypes.canonicalize_dtype(int).name == "int32"
    assert dtypes.canonicalize_dtype(None).name == "float32"
    assert dtypes.canonicalize_dtype(scalar_class) == dtypes.as_dtype(scalar_class()) == np.float32
    assert dtypes.canonicalize_dtype(">f8").str == np.dtype("float32").str
    assert dtypes.canonicalize_dtype(float0) is float0
    assert dtypes.canonicalize_dtype(Key(), allow_extended_dtype=True) == Key()
    assert dtypes.dtype(3) == np.int64 and dtypes.dtype(3, canonicalize=True) == np.int32
    assert dtypes.dtype(np.float16(3)) == np.float16 and dtypes.dtype(True) == np.bool_
    for bad in ("S3", "O", "datetime64[s]", np.longdouble):
        with pytest.raises(TypeError, match="not supported"):
            dtypes.canonicalize_dtype(bad)
    with pytest.raises(ValueError, match="extended"):
        dtypes.canonicalize_dtype(Key())


def test_a_64_bit_type_asked_for_by_name_warns_at_the_users_line():
    with pytest.warns(UserWarning, match=r"float64 of zeros.*enable_x64") as caught:
        assert dtypes.requested_dtype("float64", "zeros") == np.float32
    assert caught[0].filename == __file__
    with explicit_x64_dtypes("error"), pytest.raises(ValueError, match="float64"):
        dtypes.requested_dtype(np.float64, "zeros")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dtypes.requested_dtype(float, "zeros") == np.float32
        assert dtypes.requested_dtype(None, "zeros") == np.float32
        with enable_x64(True):
            assert dtypes.requested_dtype("float64", "zeros") == np.float64


@pytest.mark.parametrize("name", DTYPES)
def test_kinds_of_all_types(name):
    found = DTYPES[name]
    kind = {"b": "bool", "i": "signed", "u": "unsigned", "f": "float", "c": "complex"}[name[0]]
    kind = "float" if name == "bfloat16" else kind
    assert dtypes.issubdtype(found, np.signedinteger) == (kind == "signed")
    assert dtypes.issubdtype(name, np.unsignedinteger) == (kind == "unsigned")
    assert dtypes.issubdtype(found.type, np.integer) == (kind in ("signed", "unsigned"))
    assert dtypes.issubdtype(found, np.floating) == (kind == "float")
    assert dtypes.issubdtype(found, np.inexact) == (kind in ("float", "complex"))
    assert dtypes.issubdtype(found, np.number) == (kind != "bool")
    assert dtypes.issubdtype(found, np.generic) and dtypes.issubdtype(found, found)
    assert not dtypes.issubdtype(found, dtypes.extended) and not dtypes.issubdtype(found, float0)
    assert dtypes.kind(found) == kind[0].replace("s", "i")
    scalar = {"bool": bool, "signed": int, "unsigned": int, "float": float, "complex": complex}[kind]
    assert dtypes.scalar_type_of(found) is dtypes.scalar_type_of(np.zeros(1, found)) is scalar


def test_issubdtype_of_other_specifiers():
    assert dtypes.issubdtype("float64", float) and not dtypes.issubdtype("float32", float)
    assert dtypes.issubdtype(float, np.floating) and dtypes.issubdtype(scalar_class, "float32")
    assert not dtypes.issubdtype("float8_e4m3fn", "bfloat16")
    assert dtypes.issubdtype(Key(), prng_key) and dtypes.issubdtype(Key(), dtypes.extended)
    assert dtypes.issubdtype(prng_key, dtypes.extended) and dtypes.issubdtype(Key(), Key())
    assert not dtypes.issubdtype(Key(), np.number)
    assert (dtypes.kind(Key()), dtypes.kind(float0)) == ("k", "v")


def test_scalar_type_of_does_not_confuse_equal_values():
    assert [dtypes.scalar_type_of(x) for x in (1, True, 1.0, 1 + 0j)] == [int, bool, float, complex]


def test_short_names_are_unique_and_parse_back():
    for found in (*DTYPES.values(), float0):
        assert dtypes.from_short_name(dtypes.short_name(found)) is found
    names = ["float32", "bfloat16", "int32", "uint8", "bool", "complex64", "float8_e4m3fn", "int4"]
    short = ["f32", "bf16", "i32", "u8", "bool", "c64", "f8_e4m3fn", "i4"]
    assert [dtypes.short_name(DTYPES[name]) for name in names] == short
    dtypes.register_extended_dtype(Key())
    assert dtypes.from_short_name(dtypes.short_name(Key())) == Key()
    with pytest.raises(ValueError, match="f33"):
        dtypes.from_short_name("f33")


@pytest.mark.parametrize("name", DTYPES)
def test_sizes_and_limits(name):
    found = DTYPES[name]
    digits = "".join(itertools.takewhile(str.isdigit, name.lstrip("abcdefghijklmnopqrstuvwxyz")))
    assert dtypes.itemsize_bits(found) == (int(digits) if digits else 8)
    if dtypes.issubdtype(found, np.inexact):
        limits = dtypes.finfo(found)
        assert limits.bits * (2 if found.kind == "c" else 1) == dtypes.itemsize_bits(found)
        assert float(limits.max) > 0 and dtypes.finfo(np.zeros(2, found)).max == limits.max
    elif name != "bool":
        limits = dtypes.iinfo(found)
        assert limits.max - limits.min == 2 ** dtypes.itemsize_bits(found) - 1


def test_sizes_of_what_has_none():
    for odd in (float0, Key()):
        with pytest.raises(ValueError, match="no width"):
            dtypes.itemsize_bits(odd)


def test_related_types():
    table = {
        "bool": ("float32", "float32", "complex64", "int32", "bool", "bool"),
        "int4": ("float32", "float32", "complex64", "int4", "int4", "int4"),
        "int32": ("float32", "float32", "complex64", "int32", "int32", "int32"),
        "uint64": ("float64", "float64", "complex128", "uint64", "uint64", "uint64"),
        "float8_e4m3fn": ("float8_e4m3fn", "float8_e4m3fn", "complex64", "float8_e4m3fn", "float8_e4m3fn", "float32"),
        "bfloat16": ("bfloat16", "bfloat16", "complex64", "bfloat16", "bfloat16", "float32"),
        "float16": ("float16", "float16", "complex64", "float16", "float16", "float32"),
        "float64": ("float64", "float64", "complex128", "float64", "float64", "float64"),
        "complex64": ("complex64", "float32", "complex64", "complex64", "float32", "complex64"),
        "complex128": ("complex128", "float64", "complex128", "complex128", "float64", "complex128"),
    }
    functions = (
        dtypes.to_inexact_dtype,
        dtypes.to_floating_dtype,
        dtypes.to_complex_dtype,
        dtypes.to_numeric_dtype,
        dtypes.to_real_dtype,
        dtypes.accumulation_dtype,
    )
    for name, wanted in table.items():
        assert tuple(f(DTYPES[name]).name for f in functions) == wanted


def test_extended_dtypes_compare_pickle_and_keep_shape_functions_working():
    assert Key() == Key() and hash(Key()) == hash(Key()) and Key() != np.dtype("float32")
    assert pickle.loads(pickle.dumps(Key())) == Key()
    assert dtypes.storage(Key()) == np.dtype("V8") and Key().itemsize == 8
    assert dtypes.result_type(Key(), Key()) == Key()
    keys = np.zeros((2, 3), dtypes.storage(Key()))
    assert np.concatenate([keys, keys]).reshape(4, 3).T[1:].shape == (2, 4)


# ------------------------------------------------------------------------------------------------ values into arrays

INFINITY, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    "value, name, weak",
    [
        (True, "bool", False),
        (3, "int32", True),
        (-(2**31), "int32", True),
        (2.5, "float32", True),
        (1e-40, "float32", True),
        (-INFINITY, "float32", True),
        (1j, "complex64", True),
        (np.int64(3), "int32", False),
        (np.uint64(3), "uint32", False),
        (np.float64(0.5), "float32", False),
        (np.complex128(2j), "complex64", False),
        (np.float16(0.5), "float16", False),
        (ml_dtypes.bfloat16(0.5), "bfloat16", False),
        ([1, 2], "int32", False),
        ([[1, 2.5]], "float32", False),
        ([], "float32", False),
        ([True], "bool", False),
        (np.arange(3, dtype=">i8"), "int32", False),
        (np.array([0.0, -0.0, 1e-40, INFINITY]), "float32", False),
        (np.zeros(2, float0), "float0", False),
    ],
)
def test_canonical_array_preserves_the_value(value, name, weak):
    array, got_weak = conversion.canonical_value(value)
    assert (dtypes.name(array.dtype), got_weak) == (name, weak)
    assert array.shape == np.shape(value)
    if array.dtype != float0:
        np.testing.assert_allclose(np.asarray(array, complex), np.asarray(value, complex), rtol=1e-5)
    with enable_x64(True):
        assert conversion.canonical_array(value).dtype == np.asarray(value).dtype.newbyteorder("=")


def test_nan_and_signed_zero_survive():
    assert np.isnan(conversion.canonical_array(NAN)) and np.isnan(conversion.canonical_array(np.array([NAN]))).all()
    assert np.signbit(conversion.canonical_array(-0.0)) and np.signbit(conversion.canonical_array(np.array(-0.0)))


def test_an_array_that_is_canonical_is_returned_itself():
    for name in ("float32", "bool", "bfloat16", "int4"):
        array = np.zeros(3, name if name in ("float32", "bool") else DTYPES[name])
        assert conversion.canonical_array(array) is array


UNFIT = [
    (2**40, "1099511627776", "int32"),
    (-(2**31) - 1, "-2147483649", "int32"),
    ([2**40], "1099511627776", "int32"),
    (np.array([[1, 2**40]]), "1099511627776", "int32"),
    (np.int64(-(2**40)), "-1099511627776", "int32"),
    (np.uint64(2**40), "1099511627776", "uint32"),
    (1e300, "1e.300", "float32"),
    (-1e300, "1e.300", "float32"),
    (1e-300, "1e-300", "float32"),
    (np.float64(1e-300), "1e-300", "float32"),
    (np.array([1.0, 1e-40, 1e300]), "1e.300", "float32"),
    (np.array([1.0, 1e-300, 2.0]), "1e-300", "float32"),
    (1e300j, "1e.300j", "complex64"),
    (np.array([1 + 1e-300j]), "1e-300j", "complex64"),
]


@pytest.mark.parametrize(
    "value, shown, name", UNFIT, ids=[f"{shown}-{index}" for index, (_, shown, _) in enumerate(UNFIT)]
)
def test_a_value_that_32_bits_cannot_hold_raises_with_value_type_and_fix(value, shown, name):
    with pytest.raises(NarrowingOverflowError, match=f"(?s){shown}.*{name}.*enable_x64") as caught:
        conversion.canonical_array(value)
    assert isinstance(caught.value, OverflowError)
    with enable_x64(True):
        np.testing.assert_array_equal(conversion.canonical_array(value), value)


def test_the_error_says_where_in_the_array():
    with pytest.raises(NarrowingOverflowError, match=r"index \(1, 0\)"):
        conversion.canonical_array(np.array([[1, 2], [2**40, 3]]))


def test_integers_beyond_64_bits_raise_always():
    for value in (2**70, [2**70]):
        for x64 in (False, True):
            with enable_x64(x64), pytest.raises(NarrowingOverflowError, match=str(2**70)) as caught:
                conversion.canonical_array(value)
            assert "enable_x64" not in str(caught.value)


@pytest.mark.parametrize("value", [["a"], np.array([None]), np.longdouble(3), np.datetime64("2020-01-01")])
def test_values_that_are_not_numbers_raise(value):
    with pytest.raises(InvalidInputTypeError):
        conversion.canonical_array(value)


def test_lists_of_different_length_raise():
    with pytest.raises(ValueError, match="same length"):
        conversion.canonical_array([[1], [1, 2]])


@pytest.mark.parametrize(
    "value, name, want",
    [
        (3, "bfloat16", 3),
        (3.7, "int32", 3),
        (2**70, "float32", 2.0**70),
        ([2**70], "float32", [2.0**70]),
        (2**32 - 1, "uint32", 2**32 - 1),
        (1e-20, "float16", 0),
        (1e20, "float16", INFINITY),
        (np.array([300]), "int8", [44]),
        ([7, -8], "int4", [7, -8]),
        (5, "bool", True),
        (np.array([2**33]), "float32", [2.0**33]),
    ],
)
def test_coerce_value_converts_as_asked(value, name, want):
    array = conversion.coerce_value(value, name)
    assert array.dtype == DTYPES[name]
    np.testing.assert_array_equal(array.astype("float64"), np.asarray(want, "float64"))


@pytest.mark.parametrize(
    "value, name",
    [(300, "int8"), (-1, "uint32"), (9, "int4"), ([300], "int8"), (2**32, "uint32"), (1e300, "float32")]
    + [(np.array([2**40]), "int32"), (np.array([-1]), "uint32"), (np.array([1e-300]), "float32")],
)
def test_coerce_value_rejects_changed_values(value, name):
    with pytest.raises(NarrowingOverflowError, match=name):
        conversion.coerce_value(value, name)


def test_coerce_value_takes_keys_only_as_they_are_stored():
    stored = np.zeros(2, dtypes.storage(Key()))
    assert conversion.coerce_value(stored, Key()) is stored
    with pytest.raises(TypeError, match="key<test>"):
        conversion.coerce_value(np.zeros(2, "uint32"), Key())


def test_promotion_from_many_threads_in_both_modes():
    pairs = [(DTYPES[a], DTYPES[b]) for a, b in itertools.product(("int8", "float32", "bfloat16"), repeat=2)]
    wrong = []

    def work(mode):
        with numpy_dtype_promotion(mode):
            for _ in range(200):
                for a, b in pairs:
                    if (promoted(a, b) == "error") != (mode == "strict" and a != b):
                        wrong.append((mode, a, b))

    threads = [threading.Thread(target=functools.partial(work, mode)) for mode in ("standard", "strict") * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong

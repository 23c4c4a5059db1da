"""Scopes: paths, names, mutable collections, and keys that depend on path and count alone."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft.errors import (
    ImmutableCollectionError,
    MissingRngError,
    NameInUseError,
    ParameterNotFoundError,
    ParameterShapeError,
    ScopeLeakError,
)
from weft.modules import filters, scope
from weft.modules.filters import DenyList

KEY = weft.random.key(7)
FILTERS = [True, False, "a", ("a", "b"), DenyList("a"), DenyList(("b", "c")), DenyList(DenyList("a"))]


@pytest.mark.parametrize(("left", "right"), list(itertools.product(FILTERS, FILTERS)))
def test_filters_are_sets(left: filters.Filter, right: filters.Filter) -> None:
    for name in "abcd":
        mine, other = filters.matches(left, name), filters.matches(right, name)
        assert filters.matches(filters.union(left, right), name) == (mine or other)
        assert filters.matches(filters.intersect(left, right), name) == (mine and other)
        assert filters.matches(filters.subtract(left, right), name) == (mine and not other)


def test_groups_take_the_first_filter_that_fits() -> None:
    assert filters.group({"a": 1, "b": 2, "c": 3}, ["a", ("a", "b")]) == ({"a": 1}, {"b": 2})
    with pytest.raises(TypeError, match="got 3"):
        filters.matches(3, "a")  # type: ignore[arg-type]


def dense(module_scope: scope.Scope, x: weft.Array, size: int) -> weft.Array:
    kernel = module_scope.param("kernel", weft.nn.initializers.lecun_normal(), (x.shape[-1], size))
    return x @ kernel + module_scope.param("bias", weft.nn.initializers.zeros, (size,))


def network(root: scope.Scope, x: weft.Array) -> weft.Array:
    calls = root.variable("counts", "calls", lambda: wnp.zeros((), wnp.int32))
    if not root.is_initializing and root.is_mutable("counts"):
        calls.value += 1
    return dense(root.child("second"), dense(root.child("first"), x, 3), 2)


def test_init_creates_what_apply_reads() -> None:
    x = wnp.ones((1, 4))
    result, variables = scope.init(network)(KEY, x)
    assert weft.tree.map(lambda leaf: leaf.shape, variables) == {
        "params": {"first": {"kernel": (4, 3), "bias": (3,)}, "second": {"kernel": (3, 2), "bias": (2,)}},
        "counts": {"calls": ()},
    }
    np.testing.assert_array_equal(scope.apply(network)(variables, x), result)
    _, changed = scope.apply(network, mutable="counts")(variables, x)
    assert changed == {"counts": {"calls": 1}}
    assert variables["counts"]["calls"] == 0, "apply wrote into the caller's dict"


def test_keys_depend_on_path_stream_and_count_alone() -> None:
    def draw(order: list[tuple[str, str]]) -> dict[tuple[str, str], list[int]]:
        root = scope.bind({}, {"params": KEY, "dropout": weft.random.key(8)})
        drawn: dict[tuple[str, str], list[int]] = {}
        for name, stream in order:
            words = weft.random.key_data(root.child(name).make_rng(stream))
            drawn.setdefault((name, stream), []).append(tuple(np.asarray(words).tolist()))
        return drawn

    pairs = [("a", "params"), ("a", "dropout"), ("b", "params"), ("a", "params")]
    forward, backward = draw(pairs), draw(pairs[::-1])
    assert forward == backward
    keys = [key for some in forward.values() for key in some]
    assert len(set(keys)) == len(keys), "a key was given out twice"
    # A known value: keys must not change from one release to the next, or checkpoints would not continue.
    assert scope.stable_hash(("first", "b"), 258) == int.from_bytes(hashlib.sha1(b"firstb\x01\x02").digest()[:4], "big")


def test_the_params_key_replaces_missing_streams() -> None:
    root = scope.bind({}, KEY)
    assert root.has_rng("params") and not root.has_rng("dropout")
    assert root.make_rng("dropout").shape == ()


def test_names() -> None:
    root = scope.bind({}, KEY, mutable=True)
    root.reserve("x", "params")
    root.reserve("x", "state")
    for taken in ("params", "state", None):
        with pytest.raises(NameInUseError, match="'x'"):
            root.reserve("x", taken)
    root.reserve("Dense_0")
    assert root.default_name("Dense") == "Dense_1"
    with pytest.raises(NameInUseError, match="a submodule has the name"):
        root.reserve("Dense_0", "params")
    assert not root.without_names().names
    with pytest.raises(TypeError, match="must be a string"):
        root.reserve(3)  # type: ignore[arg-type]


def test_errors_name_the_path() -> None:
    x = wnp.ones((1, 4))
    _, variables = scope.init(network)(KEY, x)
    with pytest.raises(ParameterShapeError, match=r"'kernel' of module /first needs shape \(5, 3\)") as shape:
        scope.apply(network)(variables, wnp.ones((1, 5)))
    assert "(4, 3)" in str(shape.value) and "test_scope.py" in str(shape.value)
    with pytest.raises(ParameterNotFoundError, match="Module /second has no parameter 'kernel'"):
        scope.apply(network)({**variables, "params": {"first": variables["params"]["first"]}}, x)
    with pytest.raises(ParameterNotFoundError, match="'calls' in collection 'counts'"):
        scope.apply(network)({"params": variables["params"]}, x)
    with pytest.raises(MissingRngError, match="Module /inner needs a random key of stream 'noise'"):
        scope.bind({}).child("inner").make_rng("noise")
    with pytest.raises(ImmutableCollectionError, match="Module /inner writes variable 'x' of collection 'state'"):
        scope.bind({}, mutable="cache").child("inner").put_variable("state", "x", 1)
    with pytest.raises(MissingRngError, match="Stream 'params' needs one random key"):
        scope.init(network)(3, x)
    with pytest.raises(ValueError, match="contain 'params' already"):
        scope.apply(network)({"params": {"params": {}}}, x)
    with pytest.raises(TypeError, match="dict of collections"):
        scope.apply(network)(x, x)  # type: ignore[arg-type]


def test_an_initializer_may_take_anything() -> None:
    def model(root: scope.Scope) -> weft.Array:
        return root.param("like", lambda key, x: x * 2, wnp.arange(3.0)) + root.param("alone", lambda key: wnp.ones(3))

    result, variables = scope.init(model)(KEY)
    np.testing.assert_array_equal(scope.apply(model)(variables), result)
    as_numpy = weft.tree.map(np.asarray, variables)
    np.testing.assert_array_equal(scope.apply(model)(as_numpy), result)
    with pytest.raises(ParameterShapeError, match=r"'like' of module / needs shape \(3,\)"):
        scope.apply(model)({"params": {**variables["params"], "like": wnp.ones(4)}})


def test_a_scope_ends_with_its_call() -> None:
    leaked: list[scope.Scope] = []
    scope.apply(lambda root: leaked.append(root.child("a")))({})
    with pytest.raises(ScopeLeakError, match="Module /a cannot use its variables here"):
        leaked[0].get_variable("params", "x")


def test_flat_layout_is_a_tree_of_one_level() -> None:
    """Haiku's layout: children of the root whose names are whole paths."""

    def flat(root: scope.Scope, x: weft.Array) -> weft.Array:
        return dense(root.child("mlp/~/linear_0"), x, 2)

    _, variables = scope.init(flat)(KEY, wnp.ones((1, 4)))
    assert list(variables["params"]) == ["mlp/~/linear_0"]
    assert sorted(variables["params"]["mlp/~/linear_0"]) == ["bias", "kernel"]


def test_calls_are_pure_under_jit() -> None:
    x = wnp.ones((1, 4))
    result, variables = scope.init(network)(KEY, x)
    staged = weft.jit(scope.init(network))(KEY, x)
    np.testing.assert_allclose(staged[0], result, rtol=1e-6)
    assert weft.tree.structure(staged[1]) == weft.tree.structure(variables)

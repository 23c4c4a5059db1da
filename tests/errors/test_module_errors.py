"""Errors of modules use the terms of the API that was called, with the module's path, the line and a fix.

Each mistake is made in linen and in haiku: a parameter of another shape, a missing random key, state that may not be
written, a submodule reused by mistake, ways to define a module mixed up, and keys or writes inside of loops that do
not carry them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.haiku as hk
import weft.linen as nn
import weft.numpy as wnp
from weft import lax
from weft.errors import (
    ImmutableCollectionError,
    MissingRngError,
    ModuleDefinitionError,
    NameInUseError,
    ParameterNotFoundError,
    ParameterShapeError,
    ScopeLeakError,
    WeftError,
)

KEY = weft.random.key(0)
X = wnp.ones((2, 4))
# Terms of one API do not occur in errors of the other.
LINEN_WORDS = ("nn.", "model.", "mutable=", "rngs=", "collection", "variables", "self.make_rng")
HAIKU_WORDS = ("hk.", "f.apply", "f.init", "transformed function")

# ---------------------------------------------------------------------------------------------------------- in linen


class Block(nn.Module):
    """Some work inside of a submodule, with what a mistake needs in reach."""

    work: Callable[[Any, Any], Any]

    @nn.compact
    def __call__(self, x: Any) -> Any:
        return self.work(self, x)


class Network(nn.Module):
    work: Callable[[Any, Any], Any]

    @nn.compact
    def __call__(self, x: Any) -> Any:
        return Block(self.work, name="block")(x)


def linen(work: Callable[[Any, Any], Any], x: Any = X, **options: Any) -> Any:
    """Apply the network to variables that it was not made for, if `options` say no others."""
    kwargs = {"variables": {"params": {"block": {"Dense_0": {"kernel": wnp.ones((4, 3)), "bias": wnp.ones(3)}}}}}
    kwargs = {**kwargs, **options}
    return Network(work).apply(kwargs.pop("variables"), x, **kwargs)


def dropout(module: Any, x: Any) -> Any:
    return nn.Dropout(0.5, deterministic=False)(x)


def two_of_one_name(module: Any, x: Any) -> Any:
    return nn.Dense(4, name="layer")(nn.Dense(4, name="layer")(x))


class SetupAndCompact(nn.Module):
    def setup(self) -> None:
        self.Dense_0 = nn.Dense(3)

    @nn.compact
    def __call__(self, x: Any) -> Any:
        return self.Dense_0(x) + nn.Dense(3)(x)


class AttributeInCompact(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        self.dense = nn.Dense(3)
        return self.dense(x)


class NeitherSetupNorCompact(nn.Module):
    def __call__(self, x: Any) -> Any:
        return nn.Dense(3)(x)


IN_LINEN = {
    "another shape": (lambda: linen(lambda m, x: nn.Dense(5)(x)), ParameterShapeError, "/block/Dense_0", "model.init"),
    "no parameter": (
        lambda: linen(lambda m, x: nn.Dense(3)(x), variables={}),
        ParameterNotFoundError,
        "/block/Dense_0",
        "model.apply(variables, ...)",
    ),
    "no key": (lambda: linen(dropout), MissingRngError, "/block/Dropout_0", "rngs={'dropout'"),
    "state not mutable": (
        lambda: linen(lambda m, x: m.put_variable("stats", "mean", x)),
        ImmutableCollectionError,
        "/block writes variable 'mean' of collection 'stats'",
        "mutable=['stats']",
    ),
    "one name twice": (
        lambda: linen(two_of_one_name),
        NameInUseError,
        "'layer' cannot name a submodule",
        "make it once",
    ),
    "setup and compact clash": (lambda: SetupAndCompact().init(KEY, X), NameInUseError, "of module /", "another name"),
    "attribute in compact": (
        lambda: AttributeInCompact().init(KEY, X),
        ModuleDefinitionError,
        "'dense' of module / (AttributeInCompact)",
        "in setup",
    ),
    "neither setup nor compact": (
        lambda: NeitherSetupNorCompact().init(KEY, X),
        ModuleDefinitionError,
        "submodule Dense of module / (NeitherSetupNorCompact)",
        "@nn.compact",
    ),
}

# ---------------------------------------------------------------------------------------------------------- in haiku


class Inner(hk.Module):
    def __init__(self, work: Callable[[Any], Any], name: str = "block"):
        super().__init__(name)
        self.work = work

    def __call__(self, x: Any) -> Any:
        return self.work(x)


class NoName(hk.Module):
    def __init__(self) -> None:
        self.size = 3


def haiku(work: Callable[[Any], Any], x: Any = X, key: Any = None) -> Any:
    params = {"block/linear": {"w": wnp.ones((4, 3)), "b": wnp.ones(3)}}
    return hk.transform(lambda x: Inner(work)(x)).apply(params, key, x)


def count(x: Any) -> Any:
    value = hk.get_state("count", [], wnp.int32, init=wnp.zeros)
    hk.set_state("count", value + 1)
    return value


def reused() -> Any:
    """Call a module of the first run in the second, beside one that has its path."""
    saved: list[Any] = []
    make = lambda x: saved.append(hk.Linear(4)) or saved[0](x)
    hk.transform(make).init(KEY, X)
    return hk.transform(lambda x: hk.Linear(4)(saved[0](x))).init(KEY, X)


IN_HAIKU = {
    "another shape": (lambda: haiku(lambda x: hk.Linear(5)(x)), ParameterShapeError, "'block/linear'", "f.init(key"),
    "no parameter": (
        lambda: haiku(lambda x: hk.Linear(3, name="other")(x)),
        ParameterNotFoundError,
        "'block/other'",
        "f.i",
    ),
    "no key": (lambda: haiku(lambda x: hk.dropout(hk.next_rng_key(), 0.5, x)), MissingRngError, "'block'", "f.apply"),
    "state not mutable": (
        lambda: haiku(count),
        ImmutableCollectionError,
        "'block' uses state 'count'",
        "hk.transform_with_state",
    ),
    "one name twice": (
        lambda: haiku(lambda x: [hk.Linear(3, name="a_2") for _ in "ab"]),
        NameInUseError,
        "'block/a_2'",
        "make the module once",
    ),
    "module of another run": (
        reused,
        NameInUseError,
        "'linear' of an earlier run cannot be used",
        "inside of the function",
    ),
    "no name": (
        lambda: hk.transform(lambda: NoName()).init(KEY),
        ModuleDefinitionError,
        "NoName has no name",
        "super().__init__",
    ),
}

# ------------------------------------------------------------------------------------------------- inside of loops

LOOPS: dict[str, Callable[[Callable[[Any], Any], Any], Any]] = {
    "scan": lambda f, x: lax.scan(lambda carry, row: (carry, f(row)), 0.0, x)[1],
    "map": lambda f, x: lax.map(f, x),
    "fori_loop": lambda f, x: lax.fori_loop(0, 3, lambda i, x: f(x), x),
    "while_loop": lambda f, x: lax.while_loop(lambda x: x.sum() < 30, lambda x: f(x) + 1, x),
    "scan in vmap": lambda f, x: weft.vmap(lambda x: lax.scan(lambda c, one: (c, f(one)), 0.0, x)[1])(x),
    "grad in scan": lambda f, x: lax.scan(lambda c, row: (c, weft.grad(lambda row: f(row).sum())(row)), 0.0, x)[1],
}
OTHERS: dict[str, Callable[[Callable[[Any], Any], Any], Any]] = {
    "jit": lambda f, x: weft.jit(f)(x),
    "cond": lambda f, x: lax.cond(x.sum() > 0, f, lambda x: x, x),
    "checkpoint": lambda f, x: weft.checkpoint(f)(x),
}
VALUES: dict[str, Callable[[Callable[[Any], Any], Any], Any]] = {
    "grad": lambda f, x: weft.grad(lambda x: f(x).sum())(x),
    "vmap": lambda f, x: weft.vmap(f)(x),
    "nothing": lambda f, x: f(x),
}


def write(module: Any) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        module.put_variable("stats", "number", wnp.ones(()))
        return x

    return run


def set_state(x: Any) -> Any:
    hk.set_state("number", wnp.ones(()))
    return x


def drop(x: Any) -> Any:
    return hk.dropout(hk.next_rng_key(), 0.5, x)


def linen_loop(loop: Callable[..., Any], jitted: bool = False) -> Any:
    run = lambda x: linen(lambda m, x: loop(nn.Dropout(0.5, deterministic=False), x), x, rngs={"dropout": KEY})
    return weft.jit(run)(X) if jitted else run(X)


def linen_write(loop: Callable[..., Any]) -> Any:
    return linen(lambda m, x: loop(write(m), x), mutable=["stats"])


def haiku_state(work: Callable[[Any], Any]) -> Any:
    f = hk.transform_with_state(lambda x: Inner(work)(x))
    return f.apply({}, {"block": {"number": wnp.zeros(())}}, None, X)


for name in LOOPS:
    IN_LINEN[f"key in {name}"] = (
        lambda name=name: linen_loop(LOOPS[name]),
        ScopeLeakError,
        "/block/Dropout_0 draws a random key of stream 'dropout' inside of a loop",
        "nn.scan",
    )
    IN_HAIKU[f"key in {name}"] = (
        lambda name=name: haiku(lambda x: LOOPS[name](drop, x), key=KEY),
        ScopeLeakError,
        "'block' draws a random key inside of a transformation that does not carry keys: it would be the same",
        "hk.scan",
    )
for name in {**LOOPS, **OTHERS}:
    IN_LINEN[f"write in {name}"] = (
        lambda name=name: linen_write({**LOOPS, **OTHERS}[name]),
        ScopeLeakError,
        "/block writes variable 'number' of collection 'stats' inside of a transformation",
        "nn.scan",
    )
    IN_HAIKU[f"write in {name}"] = (
        lambda name=name: haiku_state(lambda x: {**LOOPS, **OTHERS}[name](set_state, x)),
        ScopeLeakError,
        "'block' writes state 'number' inside of a transformation",
        "hk.scan",
    )
for name in OTHERS:
    IN_HAIKU[f"key in {name}"] = (
        lambda name=name: haiku(lambda x: OTHERS[name](drop, x), key=KEY),
        ScopeLeakError,
        "'block' draws a random key inside of a transformation that does not carry keys: the next key",
        "hk.remat",
    )


def told(run: Callable[[], Any], kind: type[WeftError], words: str, fix: str) -> str:
    with pytest.raises(kind) as caught:
        run()
    text = str(caught.value)
    assert words in text
    assert caught.value.fix and fix in text.partition("\n  fix")[2]
    assert "test_module_errors.py" in text.partition("\n  at")[2]
    return text


@pytest.mark.parametrize("mistake", IN_LINEN)
def test_in_linen(mistake: str) -> None:
    text = told(*IN_LINEN[mistake])
    assert not [word for word in HAIKU_WORDS if word in text]


@pytest.mark.parametrize("mistake", IN_HAIKU)
def test_in_haiku(mistake: str) -> None:
    text = told(*IN_HAIKU[mistake])
    assert not [word for word in LINEN_WORDS if word in text]


# ---------------------------------------------------------------------------------------------- what is no mistake


@pytest.mark.parametrize("name", [*OTHERS, *VALUES])
def test_linen_keys_may_be_drawn_where_they_are_used_once(name: str) -> None:
    """A key of linen depends on the path and a count alone, so nothing leaks from a branch or a jitted function."""
    result = linen_loop({**OTHERS, **VALUES}[name])
    assert set(np.unique(np.asarray(result))) <= {0.0, 2.0}
    np.testing.assert_array_equal(linen_loop({**OTHERS, **VALUES}[name], jitted=True), result)


@pytest.mark.parametrize("name", VALUES)
def test_writes_and_haiku_keys_are_allowed_in_transformations_of_values(name: str) -> None:
    assert linen_write(VALUES[name])[1] == {"stats": {"block": {"number": 1}}}
    assert haiku_state(lambda x: VALUES[name](set_state, x))[1] == {"block": {"number": 1}}
    assert haiku(lambda x: VALUES[name](drop, x), key=KEY).shape == X.shape


def test_the_suggested_fixes_work() -> None:
    class Loop(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            step = lambda module, carry, row: (carry, module(row))
            return nn.scan(step, split_rngs={"dropout": True})(nn.Dropout(0.5, deterministic=False), 0.0, x)[1]

    wide = wnp.ones((2, 64))
    first, second = np.asarray(Loop().apply({}, wide, rngs={"dropout": KEY}))
    assert (first != second).any()

    def by_keys(x: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            key, row = x
            with hk.with_rng(key):
                return carry, drop(row)

        return lax.scan(step, 0.0, (hk.next_rng_keys(2), x))[1]

    def by_state(x: Any) -> Any:
        """Pass the state of the sequence through the loop by hand."""

        def step(state: Any, row: Any) -> Any:
            hk.replace_rng_sequence_state(state)
            result = drop(row)
            return hk.maybe_get_rng_sequence_state(), result

        state, result = lax.scan(step, hk.maybe_get_rng_sequence_state(), x)
        hk.replace_rng_sequence_state(state)
        return result + 0 * weft.random.uniform(hk.next_rng_key())

    def by_scan(x: Any) -> Any:
        return hk.scan(lambda carry, row: (carry, drop(row)), 0.0, x)[1]

    for work in (by_keys, by_state, by_scan):
        first, second = np.asarray(haiku(work, wide, key=KEY))
        assert (first != second).any()


def test_reserved_keys_do_not_bypass_the_check() -> None:
    """A jitted function that is called again would use the same key again."""
    with pytest.raises(ScopeLeakError, match="same in each iteration"):
        haiku(lambda x: LOOPS["scan"](drop, (hk.reserve_rng_keys(2), x)[1]), key=KEY)
    with pytest.raises(ScopeLeakError, match="does not carry keys"):
        haiku(lambda x: weft.jit(drop)((hk.reserve_rng_keys(2), x)[1]), key=KEY)


def test_a_module_of_an_earlier_run_alone_is_found_by_its_path() -> None:
    saved: list[Any] = []

    def once(x: Any) -> Any:
        if not saved:
            saved.append(hk.Linear(4))
        return saved[0](x)

    f = hk.transform(once)
    params = f.init(KEY, X)
    np.testing.assert_allclose(f.apply(params, None, X), X @ params["linear"]["w"], rtol=1e-6)
    with pytest.raises(NameInUseError, match="'linear'"):
        hk.transform(lambda x: hk.Linear(4)(once(x))).init(KEY, X)

"""Check that no random key is used twice, over jaxprs and, operation by operation, over concrete arrays.

Drawing from a key or splitting it uses it up; `fold_in` and `clone` do not. Slices use up their part of a key array.
Reshaped or repeated keys are the same keys. Where an operation selects keys by values that are not known, the check
accepts them.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import KeyReuseError
from weft.base.source import Location, user_line, user_location
from weft.ir.jaxpr import Equation, Jaxpr, Var
from weft.ir.primitive import Params, Primitive

LIMIT = 1 << 16  # key arrays larger than this are tracked as a whole


class Store:
    """Keys that were passed in or created together, with the keys used up so far and the lines that used them."""

    __slots__ = ("lines", "used")

    def __init__(self, size: int):
        self.used = np.zeros(size, bool)
        self.lines: list[tuple[np.ndarray, Location | None]] = []

    def save(self) -> tuple[np.ndarray, int]:
        """Return a copy of the state, to restore it before another branch."""
        return self.used.copy(), len(self.lines)


class Keys:
    """Key array as the check sees it: for each element the index of its key in a store; no indices if the array is
    tracked as a whole."""

    __slots__ = ("indices", "shape", "store")

    def __init__(self, shape: Sequence[Any], store: Store | None = None, indices: np.ndarray | None = None):
        self.shape = tuple(shape)
        if store is None:
            known = all(isinstance(size, int) for size in self.shape) and np.prod(self.shape, dtype=float) <= LIMIT
            store = Store(int(np.prod(self.shape)) if known else 1)
            indices = np.arange(store.used.size).reshape(self.shape) if known else None
        self.store, self.indices = store, indices

    @property
    def any_used(self) -> bool:
        """Whether some of the keys, or of the keys created together with them, are used up."""
        return bool(self.store.used.any())

    def use(self, at: Location | None, by: str) -> None:
        """Mark the keys as used up; raise if some of them have been used before."""
        store = self.store
        mask = np.zeros(store.used.shape, bool)
        mask[... if self.indices is None else self.indices] = True
        if (mask & store.used).any():
            before = next((line for held, line in store.lines if (mask & held).any()), None)
            raise make_reuse_error(by, at, before, self.shape)
        store.used |= mask
        store.lines.append((mask, at))

    def copy_keys(self, primitive: Primitive, params: Params) -> Keys:
        """Return the keys at the indices to which an operation copies them."""
        if self.indices is None:
            return self
        indices = np.asarray(primitive.eval(self.indices, **params))
        return Keys(indices.shape, self.store, indices)


def make_reuse_error(by: str, at: Location | None, before: Location | None, shape: Sequence[Any]) -> KeyReuseError:
    """Create the error for a key that `by` uses at one line after another use at line `before`."""
    earlier = f" It was used before at {before.describe()}" if before is not None else ""
    return KeyReuseError(
        f"A random key is used twice: {by} gets a key that has been used already.",
        received=f"a key{' array of shape ' + str(tuple(shape)) if shape else ''}.{earlier}",
        fix=[
            "first, second = weft.random.split(key)   and use each once",
            "weft.random.clone(key)   to get the same numbers again on purpose",
        ],
        at=at.describe() if at is not None else user_line(),
    )


def is_key_type(aval: Any) -> bool:
    return dtypes.issubdtype(getattr(aval, "dtype", np.dtype(bool)), dtypes.prng_key)


# -------------------------------------------------------------------------------------------------------------- jaxprs


def check_key_reuse(jaxpr: Jaxpr) -> None:
    """Raise if the jaxpr uses a key twice, an argument or one made inside, in any of its branches and loops."""
    follow(jaxpr, [fresh(v.aval) for v in jaxpr.invars], None)


def fresh(aval: Any) -> Keys | None:
    return Keys(aval.shape) if is_key_type(aval) else None


def follow(jaxpr: Jaxpr, arguments: Sequence[Keys | None], at: Location | None) -> list[Keys | None]:
    """Track keys through a jaxpr. `at` is the line that called it; all uses inside are reported there."""
    known: dict[Var, Keys | None] = dict(zip(jaxpr.invars, arguments, strict=True))

    def look(atom: Any) -> Keys | None:
        if type(atom) is not Var or not is_key_type(atom.aval):
            return None
        if atom not in known:
            known[atom] = fresh(atom.aval)  # a constant
        return known[atom]

    for equation in jaxpr.eqns:
        if not concerns_keys(equation):
            continue
        line = at or equation.source
        results = step(equation.primitive, equation.params, [look(a) for a in equation.invars], line)
        for variable, keys in zip(equation.outvars, results or [None] * len(equation.outvars), strict=True):
            if is_key_type(variable.aval):
                known[variable] = keys if keys is not None else fresh(variable.aval)
    return [look(v) for v in jaxpr.outvars]


def concerns_keys(equation: Equation) -> bool:
    """Return whether an equation has keys as operands, or sub-jaxprs that may create and use some."""
    return equation.primitive.higher_order or any(is_key_type(a.aval) for a in equation.invars)


def step(
    primitive: Primitive, params: Params, operands: Sequence[Keys | None], at: Location | None
) -> Sequence[Keys | None] | None:
    """Track keys through one operation; return the keys among its results, or None if they are new."""
    return primitive.keys_through(Following(at), operands, params)


class Following:
    """Callback through which the rule `keys_through` follows keys; see `KeysThrough`."""

    def __init__(self, at: Location | None) -> None:
        self.at = at

    def __call__(self, jaxpr: Jaxpr, operands: Sequence[Keys | None]) -> list[Keys | None]:
        return follow(jaxpr, operands, self.at)

    def fresh(self, aval: Any) -> Keys | None:
        return fresh(aval)

    def either(self, jaxprs: Sequence[Jaxpr], operands: Sequence[Keys | None]) -> list[Keys | None]:
        stores = list({id(k.store): k.store for k in operands if k is not None}.values())
        before = [store.save() for store in stores]
        uses: list[list[Any]] = [[] for _ in stores]
        results: list[list[Keys | None]] = []
        for jaxpr in jaxprs:
            results.append(follow(jaxpr, operands, self.at))
            for held, store, (used, count) in zip(uses, stores, before, strict=True):
                held.extend(store.lines[count:])
                store.used, store.lines[count:] = used.copy(), []
        for held, store in zip(uses, stores, strict=True):
            for mask, line in held:
                store.used |= mask
                store.lines.append((mask, line))
        return [keys[0] if all(k is keys[0] for k in keys) else None for keys in zip(*results, strict=True)]


# ----------------------------------------------------------------------------------------------------- concrete arrays

_tracked: dict[int, tuple[weakref.ref[Any], Keys]] = {}


def get_keys(array: Any) -> Keys | None:
    """Return the tracked state of a concrete key array, kept for as long as the array lives."""
    if not is_key_type(getattr(array, "aval", None)):
        return None
    found = _tracked.get(id(array))
    if found is None or found[0]() is not array:
        found = track(array, Keys(array.aval.shape))
    return found[1]


def track(array: Any, keys: Keys) -> tuple[weakref.ref[Any], Keys]:
    key = id(array)
    entry = (weakref.ref(array, lambda _: _tracked.pop(key, None)), keys)
    _tracked[key] = entry
    return entry


def before_evaluation(primitive: Primitive, args: Sequence[Any], params: Params) -> Sequence[Keys | None] | None:
    """Check one operation on concrete arrays before it runs; pass the result to `after_evaluation`."""
    operands = [get_keys(a) for a in args]
    if not primitive.higher_order and all(k is None for k in operands):
        return None
    return step(primitive, params, operands, user_location())


def after_evaluation(known: Sequence[Keys | None] | None, results: Sequence[Any]) -> None:
    """Record which results are keys that the operands already contained."""
    for keys, result in zip(known or (), results, strict=False):
        if keys is not None and is_key_type(getattr(result, "aval", None)):
            track(result, keys)

"""The check that no random key is used twice, over programs and, operation by operation, over concrete arrays.

Drawing from a key or splitting it uses it up; folding a number into it does not, nor does `clone`. Slices use up their
part of a key array. Reshaped or repeated keys are the same keys. Where an operation picks keys by values that are not
known, the check lets them pass.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import KeyReuseError
from weft.base.source import Location, user_line, user_location
from weft.ir.jaxpr import Equation, Jaxpr, Var
from weft.ir.primitive import Params, Primitive

SAME_KEYS = frozenset({"broadcast_in_dim", "copy", "name", "reshape", "squeeze", "transpose"})
LIMIT = 1 << 16  # key arrays larger than this are tracked as a whole


class Keys:
    """A key array as the check sees it: which of its keys are used up, and by which lines."""

    __slots__ = ("lines", "shape", "used")

    def __init__(self, shape: Sequence[Any]):
        self.shape = tuple(shape)
        known = all(isinstance(size, int) for size in self.shape) and np.prod(self.shape, dtype=float) <= LIMIT
        self.used = np.zeros(self.shape if known else (), bool)
        self.lines: list[tuple[np.ndarray, Location | None]] = []

    def use(self, part: Any, at: Location | None, by: str) -> None:
        """Use up a part (an index; None for all), or raise when some of it has been used before."""
        mask = np.zeros(self.used.shape, bool)
        mask[part if part is not None and self.used.shape == self.shape else ...] = True
        if (mask & self.used).any():
            before = next((line for held, line in self.lines if (mask & held).any()), None)
            raise reuse(by, at, before, self.shape)
        self.used |= mask
        self.lines.append((mask, at))

    def saved(self) -> tuple[np.ndarray, int]:
        return self.used.copy(), len(self.lines)


def reuse(by: str, at: Location | None, before: Location | None, shape: Sequence[Any]) -> KeyReuseError:
    """The error for a key that `by` uses at one line and something else used at another."""
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


# ------------------------------------------------------------------------------------------------------------ programs


def check_key_reuse(jaxpr: Jaxpr) -> None:
    """Raise when the program uses a key twice that it was given or made, through all of its branches and loops."""
    walk(jaxpr, [fresh(v.aval) for v in jaxpr.invars], None)


def fresh(aval: Any) -> Keys | None:
    return Keys(aval.shape) if is_key_type(aval) else None


def walk(jaxpr: Jaxpr, arguments: Sequence[Keys | None], at: Location | None) -> list[Keys | None]:
    """Follow keys through a program. `at` is the line that called it, to which all of its uses are charged."""
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
        place = at or equation.source
        results = step(equation.primitive, equation.params, [look(a) for a in equation.invars], place)
        for variable, made in zip(equation.outvars, results or [None] * len(equation.outvars), strict=True):
            if is_key_type(variable.aval):
                known[variable] = made if made is not None else fresh(variable.aval)
    return [look(v) for v in jaxpr.outvars]


def concerns_keys(equation: Equation) -> bool:
    """Whether keys go into an equation, or its programs may make and use some."""
    return equation.primitive.higher_order or any(is_key_type(a.aval) for a in equation.invars)


def step(
    primitive: Primitive, params: Params, operands: Sequence[Keys | None], at: Location | None
) -> Sequence[Keys | None] | None:
    """What one operation does with its keys; the keys among its results, where they are not new."""
    follow = FOLLOW.get(primitive.name)
    if follow is not None:
        return follow(params, operands, at)
    first = operands[0] if operands else None
    if first is None:
        return None
    if getattr(primitive, "consumes_keys", False):
        first.use(None, at, primitive.name)
    elif primitive.name in SAME_KEYS:
        return [first]
    elif primitive.name == "slice":
        starts, limits, strides = (params[name] for name in ("start_indices", "limit_indices", "strides"))
        part = tuple(slice(a, b, c) for a, b, c in zip(starts, limits, strides or (1,) * len(starts), strict=True))
        first.use(part, at, "indexing")
    return None


def follow_call(params: Params, operands: Sequence[Keys | None], at: Location | None) -> list[Keys | None]:
    return walk(params["jaxpr"], operands, at)


def follow_custom(params: Params, operands: Sequence[Keys | None], at: Location | None) -> list[Keys | None]:
    return walk(params["call_jaxpr"], operands, at)


def follow_checkpoint(params: Params, operands: Sequence[Keys | None], at: Location | None) -> list[Keys | None] | None:
    """The backward pass computes once more what the forward pass computed, with the same keys on purpose."""
    return None if params.get("differentiated") else walk(params["jaxpr"], operands, at)


def follow_cond(params: Params, operands: Sequence[Keys | None], at: Location | None) -> list[Keys | None]:
    """One of the branches runs: each starts from what was used before, and all of their uses count afterwards."""
    keys = list({id(k): k for k in operands if k is not None}.values())
    before = [k.saved() for k in keys]
    uses: list[list[Any]] = [[] for _ in keys]
    results: list[list[Keys | None]] = []
    for branch in params["branches"]:
        results.append(walk(branch, operands[1:], at))
        for held, k, (used, count) in zip(uses, keys, before, strict=True):
            held.extend(k.lines[count:])
            k.used, k.lines[count:] = used.copy(), []
    for held, k in zip(uses, keys, strict=True):
        for mask, line in held:
            k.used |= mask
            k.lines.append((mask, line))
    return [made[0] if all(m is made[0] for m in made) else None for made in zip(*results, strict=True)]


def follow_scan(params: Params, operands: Sequence[Keys | None], at: Location | None) -> list[Keys | None]:
    """Two rounds stand for any number: what one uses up is missed in the next, unless the carry brings a new key."""
    jaxpr, consts, count = params["jaxpr"], params["num_consts"], params["num_carry"]
    carry = list(operands[consts : consts + count])
    rounds = 1 if params["length"] == 1 else 2
    made: list[Keys | None] = []
    for number in range(rounds):
        slices = [fresh(v.aval) for v in jaxpr.invars[consts + count :]]
        made = walk(jaxpr, (*operands[:consts], *carry, *slices), at)
        carry = made[:count]
        for whole, part in zip(operands[consts + count :], slices, strict=True):
            if number == 0 and whole is not None and part is not None and part.used.any():
                whole.use(None, at, "scan")
    return [*carry, *(None for _ in made[count:])]


def follow_while(params: Params, operands: Sequence[Keys | None], at: Location | None) -> list[Keys | None]:
    """As for `scan`; the condition runs before each round."""
    conds, bodies = params["cond_nconsts"], params["body_nconsts"]
    carry = list(operands[conds + bodies :])
    for _ in range(2):
        walk(params["cond_jaxpr"], (*operands[:conds], *carry), at)
        carry = walk(params["body_jaxpr"], (*operands[conds : conds + bodies], *carry), at)
    return carry


FOLLOW: dict[str, Callable[[Params, Sequence[Keys | None], Location | None], Sequence[Keys | None] | None]] = {
    "jit": follow_call,
    "lanes": follow_call,
    "checkpoint": follow_checkpoint,
    "custom_jvp_call": follow_custom,
    "custom_vjp_call": follow_custom,
    "cond": follow_cond,
    "scan": follow_scan,
    "while": follow_while,
}


# ----------------------------------------------------------------------------------------------------- concrete arrays

_tracked: dict[int, tuple[weakref.ref[Any], Keys]] = {}


def keys_of(array: Any) -> Keys | None:
    """What is known of a concrete key array, remembered for as long as it lives."""
    if not is_key_type(getattr(array, "aval", None)):
        return None
    found = _tracked.get(id(array))
    if found is None or found[0]() is not array:
        found = track(array, Keys(array.aval.shape))
    return found[1]


def track(array: Any, keys: Keys) -> tuple[weakref.ref[Any], Keys]:
    number = id(array)
    made = (weakref.ref(array, lambda _: _tracked.pop(number, None)), keys)
    _tracked[number] = made
    return made


def before_evaluation(primitive: Primitive, args: Sequence[Any], params: Params) -> Sequence[Keys | None] | None:
    """Check one operation on concrete arrays before it runs; hand the result to `after_evaluation`."""
    operands = [keys_of(a) for a in args]
    if not primitive.higher_order and all(k is None for k in operands):
        return None
    return step(primitive, params, operands, user_location())


def after_evaluation(made: Sequence[Keys | None] | None, results: Sequence[Any]) -> None:
    """Remember which results are keys that the operands already were."""
    for keys, result in zip(made or (), results, strict=False):
        if keys is not None and is_key_type(getattr(result, "aval", None)):
            track(result, keys)

"""Automatic symbolic sizes: at the second distinct size a function is staged for all sizes.

The first call of a function has a program of its own. When a later one differs from earlier ones in sizes only, the
axes that differ become symbols; axes whose sizes were equal in all calls share one. The function is traced with them
under `answering`: comparisons of sizes become guards, and sizes that do not satisfy them have a family of their own, or
a program. A function that needs a size as a number has a program for each size.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.api.agreement import agree
from weft.api.dynamic import LEAST, KnownSizes
from weft.api.escapes import holds_size
from weft.api.explain import logger
from weft.base.dataclass import dataclass
from weft.base.settings import config
from weft.base.tree_def import PyTreeDef
from weft.indexing.dimension import shape_symbols
from weft.indexing.expression import Expression, Symbol, substitute
from weft.indexing.guards import (
    Answers,
    Assumptions,
    DeclaredAnswers,
    Guard,
    RuleGuard,
    checker,
    current,
)
from weft.ir.at_sizes import JaxprAtSizes, at_sizes, equal_sizes
from weft.ir.jaxpr import Jaxpr
from weft.ir.types import ArrayType, array_type
from weft.runtime import spmd

# Families of signatures that differ in sizes only (they differ in guards); signatures that a new one is compared with.
MOST_FAMILIES, MOST_SIGNATURES = 4, 8

# Families do not share symbols: memoized facts about a symbol may depend on the guards of its family.
_symbols = itertools.count()


class NotForAllSizes(Exception):
    """Raised for a function that cannot be staged for symbolic sizes, with the reason."""


class Proposal:
    """Signature with symbols, made from that of a call.

    `called` are the types of the call, `types` those with symbols and `sizes` the symbols' values in the call. `axes`
    are the (argument, axis) pairs that became symbols, `text` describes them. Comparisons of sizes while tracing are
    answered for the sizes of the call and recorded as `guards`. `lasting` says whether later calls may use the result.
    """

    def __init__(
        self,
        called: tuple[Any, ...],
        types: tuple[Any, ...],
        sizes: dict[Symbol, int],
        axes: tuple[tuple[int, int], ...],
        names: dict[str, str],
        text: str,
        others: Sequence[tuple[Any, ...]] = (),
    ) -> None:
        self.called, self.types, self.sizes, self.axes, self._names, self.text = called, types, sizes, axes, names, text
        self._others = others
        self.answers = Answers(sizes)
        self.lasting = True

    def name_symbols(self, text: str) -> str:
        """Replace the symbols in a text by the axes that they stand for, such as `x.shape[0]`."""
        for symbol, name in self._names.items():
            text = text.replace(symbol, name)
        return text

    @property
    def guards(self) -> tuple[Guard | RuleGuard, ...]:
        """Conditions on sizes under which the trace is valid."""
        return self.answers.guards

    def check(self, jaxpr: Jaxpr, out_tree: PyTreeDef) -> Jaxpr:
        """Return the jaxpr with one expression for sizes that are equal whenever the guards hold, so that the compiler
        sees equal types; raise `NotForAllSizes` if the jaxpr is valid for the sizes of this call only."""
        self._check_constants(out_tree)
        if spmd.find_mesh(jaxpr, ()) is not None:
            raise NotForAllSizes("programs on a mesh must have static sizes")
        equal = equal_sizes(self.guards)
        return at_sizes(jaxpr, equal) if equal else jaxpr

    def compare(self, general: Any, staged: Callable[[tuple[Any, ...]], Any], trace: Callable[[], Any]) -> None:
        """Raise `NotForAllSizes` unless the `general` function has the jaxpr of an earlier call at its sizes.

        `staged` returns what was staged for some types. If the guards hold for no earlier call, `trace` stages the
        function for the sizes of this one.
        """
        symbols, known = tuple(self.sizes), KnownSizes(self.types)
        holds = checker(self.guards, symbols)
        for types in self._others:
            sizes, earlier = known.sizes(types), staged(types)
            if sizes is None or earlier is None or not holds(*[sizes[s] for s in symbols]):
                continue
            if not isinstance(earlier.jaxpr, JaxprAtSizes):
                break
        else:
            sizes, earlier = self.sizes, trace()
        constants = (len(general.constants), len(earlier.constants))
        if not agree(at_sizes(general.jaxpr, sizes), earlier.jaxpr, constants):
            raise NotForAllSizes("its jaxpr must be the same if the size is a number, and it is not")

    def _check_constants(self, out_tree: PyTreeDef) -> None:
        if self.answers.constants:
            raise NotForAllSizes(self.name_symbols(self.answers.first_constant))
        if holds_size(out_tree):
            raise NotForAllSizes("the static data of its result must not depend on a size")


class Declaration(Proposal):
    """Signature with declared symbols. Comparisons of sizes in the user's code are answered for the sizes of the call,
    those in Weft's code are not.

    The symbols are new ones of the same names, so that comparisons in functions that were traced before are seen again.
    """

    def __init__(self, called: tuple[Any, ...], types: Sequence[Any], sizes: dict[Symbol, int]) -> None:
        new = {symbol: symbol.renew() for symbol in sizes}
        general = tuple([_with_symbols(aval, new) for aval in types])
        values = {new[symbol]: value for symbol, value in sizes.items()}
        super().__init__(called, general, values, (), {}, ", ".join(s.name for s in sizes))
        self.answers = DeclaredAnswers(values)

    def check(self, jaxpr: Jaxpr, out_tree: PyTreeDef) -> Jaxpr:
        """Return the jaxpr; raise `NotForAllSizes` if the function used a size as a number, or returns one."""
        self._check_constants(out_tree)
        return jaxpr


def assume(types: Sequence[Any]) -> Assumptions | None:
    """Return recorded assumptions as answers for symbolic types, unless a call with known sizes gives answers."""
    if current.answers is not None and not isinstance(current.answers, Assumptions):
        return None
    symbolic = any(isinstance(t, ArrayType) and shape_symbols(t.shape) for t in types)
    return Assumptions() if symbolic else None


@dataclass(frozen=True)
class Family:
    """Function staged for symbolic sizes, with the sizes that it is valid for."""

    staged: Any
    known: KnownSizes
    symbols: tuple[Symbol, ...]
    guards: tuple[Guard | RuleGuard, ...]
    holds: Callable[..., bool]

    def sizes(self, types: Sequence[Any]) -> dict[Symbol, int] | None:
        """Return the values of the symbols for a call with these types; None if the family is not valid for it."""
        sizes = self.known.sizes(types)
        return sizes if sizes is not None and self.holds(*[sizes[s] for s in self.symbols]) else None


class AutomaticSizes:
    """Families of one function, and the earlier signatures that new families are derived from.

    `rest` is `Signature.without_types`.
    """

    def __init__(self) -> None:
        self._families: dict[Any, list[Family]] = {}
        self._seen: dict[Any, deque[tuple[Any, ...]]] = {}
        # Axes whose sizes must be numbers.
        self._refused: dict[Any, set[tuple[int, int]]] = {}

    def find(self, rest: Any, types: Sequence[Any]) -> tuple[Family, dict[Symbol, int]] | None:
        """Return the family that is valid for a call, and the values of its symbols."""
        for family in self._families.get(rest, ()):
            sizes = family.sizes(types)
            if sizes is not None:
                return family, sizes
        return None

    def propose(self, rest: Any, types: tuple[Any, ...], paths: Callable[[], Sequence[str]]) -> Proposal | None:
        """Propose symbols for the sizes that differ from earlier signatures; None if no family should be made."""
        seen = self._seen.setdefault(rest, deque(maxlen=MOST_SIGNATURES))
        others = [other for other in list(seen) if _differ_in_sizes(types, other)]  # other threads append to it
        seen.append(types)
        refused = self._refused.get(rest, set())
        if not others or len(self._families.get(rest, ())) >= MOST_FAMILIES:
            return None
        groups: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for i, aval in enumerate(types):
            for axis in range(len(aval.shape) if isinstance(aval, ArrayType) else 0):
                sizes = tuple([signature[i].shape[axis] for signature in (types, *others)])
                if len(set(sizes)) > 1:
                    groups.setdefault(sizes, []).append((i, axis))
        axes = tuple(itertools.chain.from_iterable(groups.values()))
        if not groups or not refused.isdisjoint(axes):
            return None
        arguments, shapes = paths(), {i: list(types[i].shape) for i, _ in axes}
        values: dict[Symbol, int] = {}
        names: dict[str, str] = {}
        texts: list[str] = []
        for sizes, where in groups.items():
            (first, first_axis), *_ = where
            symbol = Symbol(f"size_{next(_symbols)}_", LEAST)
            values[symbol] = sizes[0]
            names[symbol.name] = f"{arguments[first]}.shape[{first_axis}]"
            texts.append(f"{names[symbol.name]} ({', '.join(map(str, sorted(set(sizes))))})")
            for i, axis in where:
                shapes[i][axis] = symbol
        general = tuple([_with_shape(t, shapes[i]) if i in shapes else t for i, t in enumerate(types)])
        return Proposal(types, general, values, axes, names, ", ".join(texts), others)

    def add(self, rest: Any, proposal: Proposal, name: str, staged: Any) -> None:
        """Add the family that was staged for a proposal, of a function with this name."""
        symbols, guards = tuple(proposal.sizes), proposal.guards
        family = Family(staged, KnownSizes(proposal.types), symbols, guards, checker(guards, symbols))
        self._families.setdefault(rest, []).insert(0, family)
        if config.log_compiles:
            conditions = proposal.name_symbols("".join(f", if {guard}" for guard in guards))
            what = f"{name} is compiled once for all sizes {proposal.text} from {LEAST} on{conditions}"
            logger.warning("%s", what)

    def refuse(self, rest: Any, proposal: Proposal, name: str, error: Exception) -> None:
        """Stop proposing symbols for these axes, since the function cannot be staged for them."""
        refused = self._refused.setdefault(rest, set())
        if refused.isdisjoint(proposal.axes) and config.log_compiles:
            why = proposal.name_symbols(str(error))
            logger.warning("%s", f"{name} is compiled for each of its sizes {proposal.text}: {why}")
        refused.update(proposal.axes)


class DeclaredSizes:
    """Families of one function for declared symbols, by signature. Those of one signature differ in guards."""

    def __init__(self) -> None:
        self._families: dict[Any, list[Family]] = {}
        self._refused: set[Any] = set()

    def find(self, key: Any, sizes: Mapping[Symbol, int]) -> tuple[Family, dict[Symbol, int]] | None:
        """Return the family that is valid for sizes, and the values of its symbols."""
        named = {symbol.name: size for symbol, size in sizes.items()}
        for family in self._families.get(key, ()):
            values = {symbol: named[symbol.name] for symbol in family.symbols}
            if family.holds(*values.values()):
                return family, values
        return None

    def may_grow(self, key: Any) -> bool:
        """Return whether another family may be added."""
        return key not in self._refused and len(self._families.get(key, ())) < MOST_FAMILIES

    def add(self, key: Any, proposal: Proposal, name: str, staged: Any) -> Family:
        """Return the family that was staged for a declaration, and add it if later calls may use it."""
        symbols, guards = tuple(proposal.sizes), proposal.guards
        family = Family(staged, KnownSizes(proposal.types), symbols, guards, checker(guards, symbols))
        if proposal.lasting:
            self._families.setdefault(key, []).insert(0, family)
        if config.log_compiles and guards:
            conditions = " and ".join(map(str, guards))
            logger.warning("%s", f"{name} is compiled once for all sizes {proposal.text} with {conditions}")
        return family

    def refuse(self, key: Any, proposal: Proposal, name: str, error: Exception) -> None:
        """Stop adding families: each size is compiled from now on."""
        if config.log_compiles and key not in self._refused:
            logger.warning("%s", f"{name} is compiled for each of its sizes {proposal.text}: {error}")
        self._refused.add(key)


def _with_symbols(aval: Any, symbols: Mapping[Symbol, Symbol]) -> Any:
    """Return a type with its symbols replaced."""
    if not isinstance(aval, ArrayType) or not any(isinstance(d, Expression) for d in aval.shape):
        return aval
    return _with_shape(aval, [substitute(d, symbols) for d in aval.shape])


def _differ_in_sizes(types: Sequence[Any], others: Sequence[Any]) -> bool:
    """Return whether types differ in sizes only, and no differing size is 0 or 1, which have a special meaning."""
    for new, old in zip(types, others, strict=True):
        if new is old:
            continue
        if not (isinstance(new, ArrayType) and isinstance(old, ArrayType)) or len(new.shape) != len(old.shape):
            return False
        if _with_shape(old, new.shape) is not new:
            return False
        if any(a != b and (a < LEAST or b < LEAST) for a, b in zip(new.shape, old.shape, strict=True)):
            return False
    return True


def _with_shape(aval: ArrayType, shape: Sequence[Any]) -> ArrayType:
    return array_type(tuple(shape), aval.dtype, aval.weak_type, aval.explicit_sharding, aval.manual, aval.memory_space)

"""Sizes that become symbols by themselves: from the second distinct size on a function is staged for all of them.

The first call of a function has a program of its own. When a later one differs from earlier ones in sizes only, the
axes that differ become symbols; those whose sizes were equal in all calls share one. The function is traced with them
under `deciding`: what it asks of sizes are guards, and sizes that do not satisfy them have a family of their own, or a
program. A function that needs a size as a number has a program for each size, as it would have without all this.
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

# Families of one signature but for sizes, which differ in their guards; and signatures that a new one is compared with.
MOST_FAMILIES, MOST_SIGNATURES = 4, 8

# Symbols are not shared by families: what others have remembered for a symbol may depend on guards of theirs.
_symbols = itertools.count()


class NotForAllSizes(Exception):
    """A function cannot be staged for symbolic sizes; says why."""


class Proposal:
    """A signature with symbols: its types, those of the call at hand, its sizes, and in words which are symbols. Its
    `answers` to questions about sizes are those for the call."""

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
        # Whether what is staged may be used again.
        self.lasting = True

    def described(self, text: str) -> str:
        """A text with symbols in the words of the caller."""
        for symbol, name in self._names.items():
            text = text.replace(symbol, name)
        return text

    @property
    def guards(self) -> tuple[Guard | RuleGuard, ...]:
        """What was asked of sizes."""
        return self.answers.guards

    def checked(self, jaxpr: Jaxpr, out_tree: PyTreeDef) -> Jaxpr:
        """What was staged, with one expression for sizes that are equal whenever the guards hold: types that fit for
        them fit for the compiler too. Raises `NotForAllSizes` if it is for the sizes of this call only."""
        self._check_constants(out_tree)
        if spmd.mesh_of(jaxpr, ()) is not None:
            raise NotForAllSizes("it runs on a mesh")
        equal = equal_sizes(self.guards)
        return at_sizes(jaxpr, equal) if equal else jaxpr

    def compare(self, general: Any, staged: Callable[[tuple[Any, ...]], Any], trace: Callable[[], Any]) -> None:
        """Raise `NotForAllSizes` unless the function staged for symbols is, at the sizes of an earlier call, what that
        call has. Where the
        guards hold for no earlier call, `trace` stages the function for the sizes of this one."""
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
            raise NotForAllSizes("it has another program if the size is a number")

    def _check_constants(self, out_tree: PyTreeDef) -> None:
        if self.answers.constants:
            raise NotForAllSizes(self.described(self.answers.first_constant))
        if holds_size(out_tree):
            raise NotForAllSizes("the static data of what it returns has a size in it")


class Declaration(Proposal):
    """A signature with symbols that were declared. Questions of the function about them are answered for the sizes of
    the call; Weft's own are not. The symbols are new ones of the same names: what was traced before of functions that
    this one calls must not hide their questions."""

    def __init__(self, called: tuple[Any, ...], types: Sequence[Any], sizes: dict[Symbol, int]) -> None:
        new = {symbol: symbol.renewed() for symbol in sizes}
        general = tuple([_with_symbols(aval, new) for aval in types])
        values = {new[symbol]: value for symbol, value in sizes.items()}
        super().__init__(called, general, values, (), {}, ", ".join(s.name for s in sizes))
        self.answers = DeclaredAnswers(values)

    def checked(self, jaxpr: Jaxpr, out_tree: PyTreeDef) -> Jaxpr:
        """What was staged. Raises `NotForAllSizes` if the function looked a size up in a table, or returns one."""
        self._check_constants(out_tree)
        return jaxpr


def assuming(types: Sequence[Any]) -> Assumptions | None:
    """Answers for types that have symbols, where nobody answers questions about them for given sizes."""
    if current.answers is not None and not isinstance(current.answers, Assumptions):
        return None
    symbolic = any(isinstance(t, ArrayType) and shape_symbols(t.shape) for t in types)
    return Assumptions() if symbolic else None


@dataclass(frozen=True)
class Family:
    """What was staged for symbols, and for which sizes it is."""

    staged: Any
    known: KnownSizes
    symbols: tuple[Symbol, ...]
    guards: tuple[Guard | RuleGuard, ...]
    holds: Callable[..., bool]

    def sizes(self, types: Sequence[Any]) -> dict[Symbol, int] | None:
        """The sizes of a call with these types, if the family is for it."""
        sizes = self.known.sizes(types)
        return sizes if sizes is not None and self.holds(*[sizes[s] for s in self.symbols]) else None


class AutomaticSizes:
    """The families of one function, and what they are made of: the signatures that were there before. `rest` is a
    signature but for its types."""

    def __init__(self) -> None:
        self._families: dict[Any, list[Family]] = {}
        self._seen: dict[Any, deque[tuple[Any, ...]]] = {}
        # Axes whose sizes are needed as numbers.
        self._refused: dict[Any, set[tuple[int, int]]] = {}

    def find(self, rest: Any, types: Sequence[Any]) -> tuple[Family, dict[Symbol, int]] | None:
        """The family that a call is for, and its sizes."""
        for family in self._families.get(rest, ()):
            sizes = family.sizes(types)
            if sizes is not None:
                return family, sizes
        return None

    def propose(self, rest: Any, types: tuple[Any, ...], paths: Callable[[], Sequence[str]]) -> Proposal | None:
        """Symbols for what differs from earlier signatures; None if that is not only sizes, or not worth it."""
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
        """Remember what was staged for symbols of a function of this name."""
        symbols, guards = tuple(proposal.sizes), proposal.guards
        family = Family(staged, KnownSizes(proposal.types), symbols, guards, checker(guards, symbols))
        self._families.setdefault(rest, []).insert(0, family)
        if config.log_compiles:
            conditions = proposal.described("".join(f", if {guard}" for guard in guards))
            what = f"{name} is compiled once for all sizes {proposal.text} from {LEAST} on{conditions}"
            logger.warning("%s", what)

    def refuse(self, rest: Any, proposal: Proposal, name: str, error: Exception) -> None:
        """Leave these axes alone from now on, since a function of this name cannot be staged for symbols."""
        refused = self._refused.setdefault(rest, set())
        if refused.isdisjoint(proposal.axes) and config.log_compiles:
            why = proposal.described(str(error))
            logger.warning("%s", f"{name} is compiled for each of its sizes {proposal.text}: {why}")
        refused.update(proposal.axes)


class DeclaredSizes:
    """The families of one function for sizes that are declared to be symbols, by signature. They differ in guards."""

    def __init__(self) -> None:
        self._families: dict[Any, list[Family]] = {}
        self._refused: set[Any] = set()

    def find(self, key: Any, sizes: Mapping[Symbol, int]) -> tuple[Family, dict[Symbol, int]] | None:
        """The family for sizes, and the sizes of its symbols."""
        named = {symbol.name: size for symbol, size in sizes.items()}
        for family in self._families.get(key, ()):
            values = {symbol: named[symbol.name] for symbol in family.symbols}
            if family.holds(*values.values()):
                return family, values
        return None

    def may_grow(self, key: Any) -> bool:
        """Whether there may be another family."""
        return key not in self._refused and len(self._families.get(key, ())) < MOST_FAMILIES

    def add(self, key: Any, proposal: Proposal, name: str, staged: Any) -> Family:
        """Remember what was staged for symbols of a function of this name, if it may be used again."""
        symbols, guards = tuple(proposal.sizes), proposal.guards
        family = Family(staged, KnownSizes(proposal.types), symbols, guards, checker(guards, symbols))
        if proposal.lasting:
            self._families.setdefault(key, []).insert(0, family)
        if config.log_compiles and guards:
            conditions = " and ".join(map(str, guards))
            logger.warning("%s", f"{name} is compiled once for all sizes {proposal.text} with {conditions}")
        return family

    def refuse(self, key: Any, proposal: Proposal, name: str, error: Exception) -> None:
        """Compile each size from now on."""
        if config.log_compiles and key not in self._refused:
            logger.warning("%s", f"{name} is compiled for each of its sizes {proposal.text}: {error}")
        self._refused.add(key)


def _with_symbols(aval: Any, symbols: Mapping[Symbol, Symbol]) -> Any:
    """A type with other symbols."""
    if not isinstance(aval, ArrayType) or not any(isinstance(d, Expression) for d in aval.shape):
        return aval
    return _with_shape(aval, [substitute(d, symbols) for d in aval.shape])


def _differ_in_sizes(types: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether types differ in sizes only, none of which is 0 or 1 where it differs: those mean something else."""
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

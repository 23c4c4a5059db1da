"""Compilation of exported functions to the programs of a library: one for each combination of sizes and each target."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base import dtypes, tree
from weft.base.compile_options import get_compile_options
from weft.base.errors import ArgumentError, NotSupportedError
from weft.base.lazy import lazy
from weft.base.tree import PyTreeDef
from weft.export.exported import Exported
from weft.export.file import is_empty
from weft.export.libraries.signature import Signature, Size, Tensor, make_identifiers
from weft.export.trees import to_json
from weft.indexing.dimension import shape_symbols
from weft.indexing.expression import Expression, Symbol, substitute, value_range
from weft.indexing.text import dimension_text
from weft.ir.at_sizes import JaxprAtSizes, at_sizes
from weft.ir.interpreter import storage_array
from weft.ir.jaxpr import Jaxpr
from weft.ir.types import ArrayType

if TYPE_CHECKING:
    from weft.compiler import compile as compiler, family
    from weft.compiler.target.cpu.standalone import definitions, failures, unit
else:
    compiler = lazy("weft.compiler.compile")
    family = lazy("weft.compiler.family")
    definitions = lazy("weft.compiler.target.cpu.standalone.definitions")
    failures = lazy("weft.compiler.target.cpu.standalone.failures")
    unit = lazy("weft.compiler.target.cpu.standalone.unit")

# Most combinations of sizes that one function may have: each is a row of integers in the library.
MOST_COMBINATIONS = 4096
# Bytes from which a constant is written to a file, where constants are separate.
SEPARATE_BYTES = 1024
# Most bytes of the constants in objects, which are compiled from text.
MOST_INLINE_BYTES = 128 << 20
# Smallest size that programs for several sizes share; smaller ones have programs of their own.
_LEAST_SHARED = 2


class SeparateConstants:
    """Constants of a library that are arguments of its functions; functions share equal ones."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self._names: dict[Any, str] = {}

    def name(self, array: np.ndarray) -> str:
        """Return the name of a constant."""
        key = (array.shape, array.dtype.str, hashlib.blake2b(array.view(np.uint8).data, digest_size=32).digest())
        if key not in self._names:
            self._names[key] = f"constant_{len(self._names)}"
            self.arrays[self._names[key]] = array
        return self._names[key]


class LibraryFunction:
    """Function to be compiled: an export, the arguments whose memory results may take, and constants.

    Constants are the first arguments of its programs. Large ones are its last arguments, if they are `separate`.
    """

    def __init__(
        self,
        name: str,
        exported: Exported,
        donated: Sequence[int],
        separate: SeparateConstants | None = None,
        lapack: bool = False,
    ) -> None:
        self.name, self.exported, self.lapack = name, exported, lapack
        if exported.nr_devices > 1:
            raise NotSupportedError(
                "A function of a library must be for one device.",
                received=f"{exported.fun_name}, for {exported.nr_devices} devices",
                fix="a function without a mesh",
            )
        jaxpr = exported.jaxpr
        self.constants = [np.ascontiguousarray(storage_array(value)) for value in jaxpr.consts]
        self.jaxpr = jaxpr.replace(constvars=(), consts=(), invars=(*jaxpr.constvars, *jaxpr.invars))
        self.in_avals = [t for t in exported.in_avals if not is_empty(t)]
        self.out_avals = [t for t in exported.out_avals if not is_empty(t)]
        leaves = [i for i, t in enumerate(exported.in_avals) if not is_empty(t)]
        self.donated = [False] * len(self.constants) + [i in donated for i in leaves]
        apart = [separate is not None and _is_separate(c) for c in self.constants]
        # The indices of separate constants, and their names.
        self.separate = [n for n, is_apart in enumerate(apart) if is_apart]
        self.separate_names = [] if separate is None else [separate.name(self.constants[n]) for n in self.separate]
        taken = len(self.separate_names)
        paths = [exported.argument_names[i] for i in leaves]
        self._argument_names = make_identifiers([*self.separate_names, *paths])[taken:]
        inline = sum(c.nbytes for c, is_apart in zip(self.constants, apart, strict=True) if not is_apart)
        if inline > MOST_INLINE_BYTES:
            raise ArgumentError(
                f"The constants of a library must have at most {MOST_INLINE_BYTES >> 20} MiB to be stored in objects.",
                received=f"{inline >> 20} MiB",
                fix='constants="separate"',
            )
        self.symbols = _symbols(exported)
        self.sizes = [_bounds(symbol) for symbol in self.symbols]
        combinations = math.prod(size.high - size.low + 1 for size in self.sizes)
        if combinations > MOST_COMBINATIONS:
            raise ArgumentError(
                f"The sizes of a function must have at most {MOST_COMBINATIONS} combinations.",
                received=", ".join(f"{s.name} from {s.low} to {s.high}" for s in self.sizes),
                fix='narrower bounds, symbolic_shape("b, 3", constraints=["b <= 64"])',
            )
        self.combinations = list(self._combine())
        self.homes = self._pair_results()
        self.failures = failures.Failures()
        # The jaxpr with some symbols replaced by sizes that do not share a program with others.
        self._general: dict[Any, Jaxpr] = {}

    def _pair_results(self) -> list[int | None]:
        """Return for each result the first free donated argument of its type, whose memory it takes, or None."""
        free = [i for i, donated in enumerate(self.donated[len(self.constants) :]) if donated]
        homes: list[int | None] = []
        for aval in self.out_avals:
            home = next((i for i in free if self.in_avals[i].matches(aval)), None)
            homes.append(home)
            if home is not None:
                free.remove(home)
        return homes

    @property
    def sources(self) -> list[Any]:
        """For each argument of the programs, a constant or the index of the function's argument."""
        count = len(self.in_avals)
        constants: list[Any] = list(self.constants)
        for position, n in enumerate(self.separate):
            constants[n] = count + position
        return [*constants, *range(count)]

    def _combine(self) -> Iterator[dict[Symbol, int] | None]:
        """Yield the sizes in order, the last one fastest; None where constraints exclude them."""
        for values in itertools.product(*(range(s.low, s.high + 1) for s in self.sizes)):
            sizes = dict(zip(self.symbols, values, strict=True))
            yield sizes if _satisfies(sizes, self.exported) else None

    def entry(self, target: Any) -> Any:
        """Compile the function for a target."""
        programs: list[Any] = []
        for sizes in self.combinations:
            programs.append(None if sizes is None else self._program(sizes, target))
        found = next((p for p in programs if p is not None), None)
        if found is None:
            raise ArgumentError(
                f"Some sizes of {self.name} must satisfy all of its constraints.",
                received=", ".join(f"{s.name} from {s.low} to {s.high}" for s in self.sizes),
            )
        constants = [self.constants[n] for n in self.separate]
        arguments = [self._place(t) for t in self.in_avals] + [unit.Place(c.dtype.itemsize) for c in constants]
        results = [self._place(t, home) for t, home in zip(self.out_avals, self.homes, strict=True)]
        return unit.Entry(self.name, programs, self.sources, [(s.low, s.high) for s in self.sizes], arguments, results)

    def _program(self, sizes: Mapping[Symbol, int], target: Any) -> Any:
        """Compile a program whose results take the memory of their own arguments, or of none."""
        program = self._compile(sizes, target, self.donated)
        sources = self.sources
        aliases = [None if a is None else sources[a] for a in program.aliases]
        if all(a is None or a == home for a, home in zip(aliases, self.homes, strict=True)):
            return program
        return self._compile(sizes, target, [False] * len(self.donated))

    def _compile(self, sizes: Mapping[Symbol, int], target: Any, donated: Sequence[bool]) -> Any:
        options = get_compile_options()
        plain = at_sizes(self.jaxpr, sizes) if sizes else self.jaxpr
        own = definitions.with_own_definitions(plain, target, self.lapack)
        if not sizes or own is not plain:
            return compiler.compile_program(own, donated, target, options).program
        small = {symbol: size for symbol, size in sizes.items() if size < _LEAST_SHARED}
        if len(small) == len(sizes):
            return compiler.compile_program(plain, donated, target, options).program
        key = tuple(small.items())
        if key not in self._general:
            self._general[key] = at_sizes(self.jaxpr, small) if small else self.jaxpr
        jaxpr = JaxprAtSizes(self._general[key], {s: size for s, size in sizes.items() if s not in small})
        return family.compile_instance(jaxpr, tuple(donated), target, options, False).program

    def _place(self, aval: ArrayType, alias: int | None = None) -> Any:
        return unit.Place(_element(aval)[1], self._least(aval) == 0, alias)

    def _least(self, aval: ArrayType) -> int:
        return min((_count(aval, sizes) for sizes in self.combinations if sizes is not None), default=0)

    def _most_bytes(self, aval: ArrayType) -> int:
        most = max((_count(aval, sizes) for sizes in self.combinations if sizes is not None), default=0)
        return most * _storage_bytes(aval)

    def signature(self, workspace_bytes: int) -> Signature:
        """Return the signature, once the function is compiled."""
        names = self._argument_names
        donated = self.donated[len(self.constants) :]
        arguments = [
            self._tensor(name, t, donated=d) for name, t, d in zip(names, self.in_avals, donated, strict=False)
        ]
        for name, n in zip(self.separate_names, self.separate, strict=True):
            array = self.constants[n]
            arguments.append(Tensor(name, dtypes.name(array.dtype), array.shape, array.nbytes, constant=True))
        own = self._result_names([*names, *self.separate_names])
        results = [
            self._tensor(name, t, alias=home) for name, t, home in zip(own, self.out_avals, self.homes, strict=True)
        ]
        (in_tree, exact), (out_tree, exact_results) = map(_tree_json, (self.exported.in_tree, self.exported.out_tree))
        return Signature(
            self.name, tuple(arguments), tuple(results), self._name_sizes([*arguments, *results]), workspace_bytes,
            tuple(self.failures.messages), in_tree, out_tree, exact and exact_results,
        )  # fmt: skip

    def _name_sizes(self, tensors: Sequence[Tensor]) -> tuple[Size, ...]:
        """Return the sizes with names in C that no argument and no result has."""
        taken = [tensor.name for tensor in tensors]
        own = [f"size_{s.name}" if s.name in taken else s.name for s in self.sizes]
        names = make_identifiers([*taken, *own])[len(taken) :]
        return tuple(replace(size, parameter=name) for size, name in zip(self.sizes, names, strict=True))

    def _tensor(self, name: str, aval: ArrayType, **fields: Any) -> Tensor:
        dtype, _, last = _element(aval)
        shape = tuple(dimension_text(d) if isinstance(d, Expression) else int(d) for d in (*aval.shape, *last))
        return Tensor(name, dtype, shape, self._most_bytes(aval), **fields)

    def _result_names(self, taken: Sequence[str]) -> list[str]:
        count = len(self.out_avals)
        texts = ["result"] if count == 1 else [f"result_{n}" for n in range(count)]
        return make_identifiers([*taken, *texts])[len(taken) :]


def _symbols(exported: Exported) -> list[Symbol]:
    shapes = [d for t in exported.in_avals for d in getattr(t, "shape", ())]
    return list(dict.fromkeys(shape_symbols(shapes)))


def _bounds(symbol: Symbol) -> Size:
    found = value_range(symbol)
    if found.upper is None or not isinstance(found.upper, int) or isinstance(found.upper, bool):
        raise ArgumentError(
            "Each size of a library must have an upper bound.",
            received=f"the size {symbol.name} without one",
            fix=f'symbolic_shape("{symbol.name}, 3", constraints=["{symbol.name} <= 64"])',
        )
    low = found.lower if isinstance(found.lower, int) else 0
    return Size(symbol.name, max(int(low), 0), int(found.upper))


def _satisfies(sizes: Mapping[Symbol, int], exported: Exported) -> bool:
    values: dict[Any, Any] = dict(sizes)
    for symbol, size in sizes.items():
        low, high = symbol.lower, symbol.upper
        if low is not None and size < substitute(low, values):
            return False
        if high is not None and size > substitute(high, values):
            return False
    if any(substitute(d, values) < 0 for t in exported.in_avals for d in getattr(t, "shape", ())):
        return False
    return all(substitute(expression, values) != 0 for expression, _ in exported.assumptions)


def _count(aval: ArrayType, sizes: Mapping[Symbol, int]) -> int:
    values: dict[Any, Any] = dict(sizes)
    return math.prod(int(substitute(d, values)) if isinstance(d, Expression) else int(d) for d in aval.shape)


def _storage_bytes(aval: ArrayType) -> int:
    return int(dtypes.storage(aval.dtype).itemsize)


def _element(aval: Any) -> tuple[str, int, tuple[int, ...]]:
    """Return the dtype of a value's elements in C, their alignment, and the dimensions of one element: the words of a
    random key."""
    if not isinstance(aval, ArrayType):
        raise NotSupportedError("Arguments and results of a library must be arrays.", received=aval.short())
    stored = dtypes.storage(aval.dtype)
    if stored.names is not None:
        return "uint32", 4, (stored.itemsize // 4,)
    alignment = stored.itemsize // 2 if stored.kind == "c" else stored.itemsize
    return dtypes.name(aval.dtype), alignment, ()


def _is_separate(array: np.ndarray) -> bool:
    return array.nbytes >= SEPARATE_BYTES and array.dtype.names is None


def _tree_json(structure: PyTreeDef) -> tuple[Any, bool]:
    """Return a structure as JSON, and whether it is exact: nodes without JSON become tuples, and everything becomes one
    tuple if a key of a dict has none."""
    try:
        return to_json(structure), True
    except (ArgumentError, NotSupportedError):
        pass
    try:
        return to_json(structure, plain=True), False
    except NotSupportedError:
        return to_json(tree.structure((0,) * structure.num_leaves)), False

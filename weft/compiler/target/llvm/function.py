"""Function under construction: blocks, loops and branches as context managers, memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from weft.compiler.target.llvm.atomics import Atomics
from weft.compiler.target.llvm.types import Type, i1, i8, i32, i64, ptr, vector, void
from weft.compiler.target.llvm.values import Value, constant, is_below, zero

if TYPE_CHECKING:
    from weft.compiler.target.llvm.module import Module, Parameter


class Region:
    """Code that may run zero or several times: the values it starts from, and their successors after it (`results`)."""

    def __init__(self, values: Sequence[Value]) -> None:
        self.values = tuple(values)
        self.results: tuple[Value, ...] = ()
        self._yielded: tuple[Value, ...] | None = None
        self._again: Value | None = None

    def give(self, *values: Value) -> None:
        """Set the values that the region yields: its results, and in a loop the start of the next iteration."""
        self._yielded = values

    def again(self, condition: Value, *values: Value) -> None:
        """End the body of a `repeat`: `condition` says whether another iteration starts from `values`."""
        self._again, self._yielded = condition, values


class Loop(Value, Region):
    """Index of a counted loop, with the loop-carried values."""

    __slots__ = ("_again", "_yielded", "results", "values")

    def __init__(self, text: str, type: Type, values: Sequence[Value]) -> None:
        Value.__init__(self, text, type)
        Region.__init__(self, values)


class Function(Atomics):
    """Body of one function. Instructions are appended to the current block."""

    def __init__(
        self, module: Module, name: str, returns: Type, parameters: Sequence[Parameter], linkage: str = ""
    ) -> None:
        super().__init__()
        self.module = module
        self.name = name
        self.returns = returns
        self.parameters = tuple(parameters)
        self.linkage, self.attributes = linkage, ""
        self.arguments = tuple(Value(f"%{p.name}", p.type) for p in parameters)
        self.block = "entry"
        self._labels = 0
        self._first: list[str] = []  # what comes before all lines: room on the stack, constants that are hidden
        self._hidden: dict[int, Value] = {}
        self._ended = False

    def text(self) -> str:
        """Return the definition in LLVM's syntax."""
        if not self._ended:
            self._fail("define", self.name, why=f"block {self.block} has no end")
        parameters = ", ".join(p.text() for p in self.parameters)
        linkage = f"{self.linkage} " if self.linkage else ""
        head = f"define {linkage}{self.returns.text} @{self.name}({parameters}) {self.attributes}#0 {{"
        return "\n".join([head, "entry:", *self._first, *self.lines, "}"])

    # -- blocks ----------------------------------------------------------------------------------------------------

    def label(self, name: str) -> str:
        """Return a new block label."""
        self._labels += 1
        return f"{name}{self._labels}"

    def start(self, label: str) -> None:
        """Begin a block; the previous one must have a terminator."""
        if not self._ended:
            self._fail("label", label, why=f"block {self.block} has no end")
        self.lines.append(f"{label}:")
        self.block = label
        self._ended = False

    def _end(self, text: str) -> None:
        if self._ended:
            self._fail(text, why=f"block {self.block} has ended")
        self.lines.append(f"  {text}")
        self._ended = True

    def branch(self, label: str) -> None:
        """Branch to a block."""
        self._end(f"br label %{label}")

    def branch_if(self, condition: Value, then: str, otherwise: str, unlikely: bool = False) -> None:
        """Branch to one of two blocks. `unlikely` marks the first as rare, so that LLVM places it out of line."""
        if condition.type is not i1:
            self._fail("br", condition, why="it needs i1")
        rare = f", !prof {self.module.metadata('branch_weights', 1, 4000)}" if unlikely else ""
        self._end(f"br i1 {condition.text}, label %{then}, label %{otherwise}{rare}")

    def switch(self, value: Value, otherwise: str, cases: Mapping[int, str]) -> None:
        """Branch to the block of an integer."""
        if value.type.kind != "int" or value.type.is_vector:
            self._fail("switch", value, why="it needs an integer")
        listed = " ".join(f"{constant(case, value.type)}, label %{label}" for case, label in cases.items())
        self._end(f"switch {value}, label %{otherwise} [ {listed} ]")

    def ret(self, value: Value | None = None) -> None:
        """Return from the function."""
        if (void if value is None else value.type) is not self.returns:
            self._fail("ret", value, why=f"@{self.name} returns {self.returns}")
        self._end("ret void" if value is None else f"ret {value}")

    def unreachable(self) -> None:
        """Terminate a block whose end control never reaches."""
        self._end("unreachable")

    def phi(self, type: Type, *incoming: tuple[Value, str]) -> Value:
        """Select the value of the predecessor block. Must stand at the start of a block."""
        for value, _ in incoming:
            if value.type is not type:
                self._fail("phi", *(v for v, _ in incoming), why=f"it needs values of {type}")
        return self._emit(_phi_text(type, incoming), type)

    # -- structured control flow -----------------------------------------------------------------------------------

    @contextmanager
    def loop(
        self,
        start: Value | int,
        stop: Value | int,
        step: Value | int = 1,
        carried: Sequence[Value] = (),
        flags: str = "nsw",
    ) -> Iterator[Loop]:
        """Write a counted loop, `for index in range(start, stop, step)` with a positive step.

        The value of the `with` is the index. Its `values` are the loop-carried ones at the start of the iteration; the
        body passes their successors to `give`, and `results` has the final ones after the loop.
        """
        typed = [b for b in (start, stop, step) if isinstance(b, Value)]
        if not typed:
            self._fail("loop", start, stop, step, why="one bound must be a value, so that the type is known")
        type = typed[0].type
        bounds = [b if isinstance(b, Value) else constant(b, type) for b in (start, stop, step)]
        if any(b.type is not type for b in bounds) or type.kind != "int" or type.is_vector:
            self._fail("loop", *bounds, why="it needs integers of one type")
        first, last, step_value = bounds
        before, body, after = self.block, self.label("loop"), self.label("after")
        # What is carried has equal phis in the loop and after it: code that LLVM does not optimize stores it once for
        # both, and would store it twice if it were used after the loop as it is.
        if not carried and is_below(first, last):
            self.branch(body)
        else:
            self.branch_if(self.icmp("slt", first, last), body, after)
        self.start(body)
        held = self._reserve(type, *(v.type for v in carried))
        index = Loop(held[0][1].text, type, [v for _, v in held[1:]])
        yield index
        handed = self._check_yielded("loop", index._yielded, carried)
        following = self.add(index, step_value, flags)
        again = self.icmp("slt", following, last)
        latch = self.block
        self.branch_if(again, body, after)
        for (line, register), initial, final in zip(held, (first, *carried), (following, *handed), strict=True):
            self.lines[line] = f"  {register.text} = {_phi_text(register.type, [(initial, before), (final, latch)])}"
        self.start(after)
        index.results = tuple(self.phi(a.type, (a, before), (b, latch)) for a, b in zip(carried, handed, strict=True))

    @contextmanager
    def repeat(self, *carried: Value) -> Iterator[Region]:
        """Write a loop that runs at least once; its body ends with `again(condition, *values)`."""
        before, body, after = self.block, self.label("repeat"), self.label("after")
        self.branch(body)
        self.start(body)
        held = self._reserve(*(v.type for v in carried))
        region = Region([v for _, v in held])
        yield region
        handed = self._check_yielded("repeat", region._yielded, carried)
        if region._again is None:
            self._fail("repeat", why="its body does not say whether to go on")
        latch = self.block
        self.branch_if(region._again, body, after)
        for (line, register), initial, final in zip(held, carried, handed, strict=True):
            self.lines[line] = f"  {register.text} = {_phi_text(register.type, [(initial, before), (final, latch)])}"
        self.start(after)
        region.results = handed

    @contextmanager
    def when(self, condition: Value, *otherwise: Value, unlikely: bool = False) -> Iterator[Region]:
        """Write code that runs if a scalar condition holds; otherwise its results are `otherwise`."""
        before, inside, after = self.block, self.label("when"), self.label("after")
        self.branch_if(condition, inside, after, unlikely)
        self.start(inside)
        region = Region(otherwise)
        yield region
        handed = self._check_yielded("when", region._yielded, otherwise)
        latch = self.block
        self.branch(after)
        self.start(after)
        region.results = tuple(
            self.phi(a.type, (a, before), (b, latch)) for a, b in zip(otherwise, handed, strict=True)
        )

    def _reserve(self, *types: Type) -> list[tuple[int, Value]]:
        """Reserve lines for phis whose operands are known only after the body."""
        reserved = []
        for type in types:
            reserved.append((len(self.lines), self._emit("", type)))
        return reserved

    def _check_yielded(
        self, what: str, values: tuple[Value, ...] | None, carried: Sequence[Value]
    ) -> tuple[Value, ...]:
        """Return the yielded values of a region after checking their types against the carried ones."""
        yielded = values or ()
        if [v.type for v in yielded] != [v.type for v in carried]:
            self._fail(what, *yielded, why=f"it must hand on {[v.type for v in carried]}")
        return yielded

    # -- memory ----------------------------------------------------------------------------------------------------

    def alloca(self, type: Type, count: int = 1, align: int = 64) -> Value:
        """Allocate memory on the stack at function entry."""
        self._count += 1
        name = f"%v{self._count}"
        self._first.append(f"  {name} = alloca {type.text}, i32 {count}, align {align}")
        return Value(name, ptr)

    def room(self, type: Type, count: Value, align: int = 64) -> Value:
        """Allocate stack memory for a variable number of elements, valid until the function returns."""
        if count.type.kind != "int" or count.type.is_vector:
            self._fail("alloca", count, why="it needs a count of elements")
        return self._emit(f"alloca {type.text}, {count}, align {align}", ptr)

    def copy(self, target: Value, source: Value, size: Value) -> None:
        """Copy bytes; the two ranges may overlap."""
        if target.type is not ptr or source.type is not ptr or size.type is not i64:
            self._fail("llvm.memmove", target, source, size, why="it needs two pointers and an i64")
        self.intrinsic("memmove", void, target, source, size, constant(False, i1), overload=(ptr, ptr, i64))

    def fill(self, target: Value, byte: Value, size: Value) -> None:
        """Set bytes to a value."""
        if target.type is not ptr or byte.type is not i8 or size.type is not i64:
            self._fail("llvm.memset", target, byte, size, why="it needs a pointer, an i8 and an i64")
        self.intrinsic("memset", void, target, byte, size, constant(False, i1), overload=(ptr, i64))

    def offset(self, pointer: Value, element: Type, index: Value | int, inbounds: bool = True) -> Value:
        """Return the address of the element at `index` of an array; for a vector of indices, a vector of addresses."""
        position = constant(index, i32) if isinstance(index, int) else index
        if pointer.type.kind != "ptr" or position.type.kind != "int":
            self._fail("getelementptr", pointer, position, why="it needs a pointer and an integer")
        count = max(pointer.type.count, position.type.count)
        mark = "inbounds " if inbounds else ""
        return self._emit(
            f"getelementptr {mark}{element.text}, {pointer}, {position}", vector(pointer.type.element, count)
        )

    def load(
        self,
        type: Type,
        pointer: Value,
        align: int,
        nontemporal: bool = False,
        invariant: bool = False,
        volatile: bool = False,
    ) -> Value:
        """Load a value; `invariant` memory is never written while the function runs."""
        if pointer.type.kind != "ptr" or pointer.type.is_vector:
            self._fail("load", pointer, why="it needs a pointer")
        marks = self._marks(nontemporal)
        if invariant:
            marks += f", !invariant.load {self.module.metadata()}"
        return self._emit(f"load {'volatile ' if volatile else ''}{type.text}, {pointer}, align {align}{marks}", type)

    def store(self, value: Value, pointer: Value, align: int, nontemporal: bool = False) -> None:
        """Store a value; a nontemporal store bypasses the caches, for which it needs its natural alignment."""
        if pointer.type.kind != "ptr" or pointer.type.is_vector:
            self._fail("store", value, pointer, why="it needs a pointer")
        self.lines.append(f"  store {value}, {pointer}, align {align}{self._marks(nontemporal)}")

    def expect(self, pointer: Value) -> None:
        """Prefetch the cache line of an address for writing. The address need not be valid."""
        marks = (constant(argument, i32) for argument in (1, 3, 1))  # to be written, often, data
        self.intrinsic("prefetch", void, pointer, *marks)

    def _marks(self, nontemporal: bool) -> str:
        return f", !nontemporal {self.module.metadata(1)}" if nontemporal else ""

    def masked_load(self, type: Type, pointer: Value, mask: Value, align: int, otherwise: Value | None = None) -> Value:
        """Load the elements whose mask is set; the others are `otherwise` (default zero) and their memory is not
        accessed."""
        rest = zero(type) if otherwise is None else otherwise
        self._check_mask("llvm.masked.load", type, pointer, mask)
        if rest.type is not type:
            self._fail("llvm.masked.load", rest, why=f"elements not read must be {type}")
        if not self.module.masks:
            return self._load_lanes(type, self._side_by_side(pointer, type), mask, align, rest)
        return self.intrinsic(
            "masked.load", type, pointer, constant(align, i32), mask, rest, overload=(type, pointer.type)
        )

    def masked_store(self, value: Value, pointer: Value, mask: Value, align: int) -> None:
        """Store the elements whose mask is set."""
        self._check_mask("llvm.masked.store", value.type, pointer, mask)
        if not self.module.masks:
            self._store_lanes(value, self._side_by_side(pointer, value.type), mask, align)
            return
        if value.type.kind == "int" and value.type.bits < 64:
            # If a mask turns out to be a constant with one lane set, LLVM 22 stores that lane as wide as it was before
            # it was truncated to `value`, on machines that truncate as they store: neighbours are overwritten.
            mask = self.and_(mask, self._hidden_ones(value.type.count))
        self.intrinsic(
            "masked.store", void, value, pointer, constant(align, i32), mask, overload=(value.type, pointer.type)
        )

    def _hidden_ones(self, count: int) -> Value:
        """Return a mask with all lanes set that LLVM cannot fold to a constant."""
        found = self._hidden.get(count)
        if found is None:
            before, self.lines = self.lines, self._first
            one = self._emit('call i32 asm "", "=r,0"(i32 1) nounwind memory(none)', i32)
            found = self._hidden[count] = self.splat(self.trunc(one, i1), count)
            self.lines = before
        return found

    def gather(self, type: Type, pointers: Value, mask: Value, align: int, otherwise: Value | None = None) -> Value:
        """Load one element from each address whose mask is set."""
        rest = zero(type) if otherwise is None else otherwise
        self._check_mask("llvm.masked.gather", type, pointers, mask, pointers.type.count)
        if not self.module.masks:
            return self._load_lanes(type, self._each(pointers), mask, align, rest)
        return self.intrinsic(
            "masked.gather", type, pointers, constant(align, i32), mask, rest, overload=(type, pointers.type)
        )

    def scatter(self, value: Value, pointers: Value, mask: Value, align: int) -> None:
        """Store one element to each address whose mask is set, in the order of the elements."""
        self._check_mask("llvm.masked.scatter", value.type, pointers, mask, pointers.type.count)
        if not self.module.masks:
            self._store_lanes(value, self._each(pointers), mask, align)
            return
        self.intrinsic(
            "masked.scatter", void, value, pointers, constant(align, i32), mask, overload=(value.type, pointers.type)
        )

    def _side_by_side(self, pointer: Value, type: Type) -> list[Value]:
        """Return the addresses of the lanes of a contiguous vector."""
        return [self.offset(pointer, type.element, lane, inbounds=False) for lane in range(type.count)]

    def _each(self, pointers: Value) -> list[Value]:
        return [self.extract(pointers, lane) for lane in range(pointers.type.count)]

    def _load_lanes(self, type: Type, pointers: Sequence[Value], mask: Value, align: int, rest: Value) -> Value:
        """Load the lanes whose mask is set, one after the other."""
        for lane, pointer in enumerate(pointers):
            with self.when(self.extract(mask, lane), self.extract(rest, lane)) as region:
                region.give(self.load(type.element, pointer, align))
            rest = self.insert(rest, region.results[0], lane)
        return rest

    def _store_lanes(self, value: Value, pointers: Sequence[Value], mask: Value, align: int) -> None:
        """Store the lanes whose mask is set, one after the other."""
        for lane, pointer in enumerate(pointers):
            with self.when(self.extract(mask, lane)):
                self.store(self.extract(value, lane), pointer, align)

    def _check_mask(self, name: str, type: Type, pointer: Value, mask: Value, pointers: int = 1) -> None:
        fits = type.is_vector and mask.type is vector(i1, type.count) and pointer.type.kind == "ptr"
        if not fits or pointers not in (1, type.count) or (pointers == 1) == pointer.type.is_vector:
            self._fail(name, pointer, mask, why=f"it needs an address and a mask that fit {type}")


def _phi_text(type: Type, incoming: Sequence[tuple[Value, str]]) -> str:
    return f"phi {type.text} " + ", ".join(f"[ {value.text}, %{label} ]" for value, label in incoming)

"""Loads and stores of lanes: contiguous, reversed or strided; with masks; complex numbers as interleaved pairs.

Memory handles the numbers that a dtype is stored as (a bool is a byte, a complex number two floats); `lanes` converts
them from and to their form in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from weft.base.dataclass import dataclass
from weft.compiler.target import llvm
from weft.compiler.target.llvm import Function, Type, Value, constant_vector, i1, i32, vector

# Builds the mask of numbers in memory from the lane that each belongs to; numbers of no lane (None) are masked off.
Mask = Callable[[Sequence[int | None]], Value]


@dataclass(frozen=True)
class Access:
    """Location of lanes in memory: elements from `base` on, at a constant `stride` or at `offsets` from it.

    `base` is the address of the element of the first lane; `safe` says that it is inside the buffer. The address is a
    multiple of `align` bytes, if more is known than the alignment of an element.
    """

    base: Value
    stride: int
    offsets: Value | None = None
    safe: bool = True
    align: int = 1


class LaneMemory:
    """Reader and writer of `parts` numbers of one element type for each lane: two for complex numbers, else one."""

    def __init__(self, function: Function, element: Type, parts: int) -> None:
        self.f = function
        self.element = element
        self.parts = parts
        self.align = element.bits // 8

    def address(self, pointer: Value, index: Value, safe: bool = True) -> Value:
        """Return the address of an element."""
        scaled = index if self.parts == 1 else self.f.shl(index, llvm.constant(1, index.type))
        return self.f.offset(pointer, self.element, scaled, inbounds=safe)

    # -- one element -----------------------------------------------------------------------------------------------

    def load_one(self, address: Value, align: int = 1) -> list[Value]:
        """Load the numbers of one element whose address is a multiple of `align`: a larger alignment lets LLVM merge
        the load with those of neighbours."""
        return [self.f.load(self.element, self._part(address, n), a) for n, a in enumerate(self._alignments(align))]

    def store_one(self, values: Sequence[Value], address: Value, align: int = 1) -> None:
        """Store the numbers of one element whose address is a multiple of `align`."""
        for n, (value, aligned) in enumerate(zip(values, self._alignments(align), strict=True)):
            self.f.store(value, self._part(address, n), aligned)

    def _alignments(self, align: int) -> list[int]:
        """Return the alignment of each number of one element."""
        return [max(self.align, align), *(self.align for _ in range(1, self.parts))]

    def _part(self, address: Value, index: int) -> Value:
        return self.f.offset(address, self.element, index) if index else address

    # -- lanes -----------------------------------------------------------------------------------------------------

    def load(self, access: Access, width: int, mask: Value | None, otherwise: Sequence[Value] | None) -> list[Value]:
        """Load lanes, all of them if there is no mask; masked-off lanes are those of `otherwise`."""
        if access.offsets is None and abs(access.stride) == 1:
            backwards = access.stride < 0
            start, order = self._span(access, width), _order(width, self.parts, backwards)
            type = vector(self.element, width * self.parts)
            if mask is None:
                whole = self.f.load(type, start, self._alignment(access))
            elif self.parts == 1 and not backwards:
                rest = None if otherwise is None else otherwise[0]
                return [self.f.masked_load(type, start, mask, self.align, rest)]
            else:
                whole = self.f.masked_load(type, start, self._element_mask(mask, order), self.align)
            lanes = [self._pick(whole, order[n :: self.parts]) for n in range(self.parts)]
            if mask is None or otherwise is None:
                return lanes
            return [self.f.select(mask, a, b) for a, b in zip(lanes, otherwise, strict=True)]
        read = mask if mask is not None else constant_vector([1] * width, i1)
        type = vector(self.element, width)
        pointers = self._pointers(access, width)
        return [
            self.f.gather(type, self._part(pointers, n), read, self.align, None if otherwise is None else otherwise[n])
            for n in range(self.parts)
        ]

    def store(self, values: Sequence[Value], access: Access, mask: Value | None) -> None:
        """Store lanes, all of them if there is no mask."""
        width = values[0].type.count
        if access.offsets is None and abs(access.stride) == 1:
            order = _order(width, self.parts, access.stride < 0)
            whole = self._merge(values, order)
            start = self._span(access, width)
            if mask is None:
                self.f.store(whole, start, self._alignment(access))
            else:
                self.f.masked_store(whole, start, self._element_mask(mask, order), self.align)
            return
        written = mask if mask is not None else constant_vector([1] * width, i1)
        pointers = self._pointers(access, width)
        for n, value in enumerate(values):
            self.f.scatter(value, self._part(pointers, n), written, self.align)

    def _span(self, access: Access, width: int) -> Value:
        """Return the lowest address of contiguous lanes."""
        if access.stride > 0:
            return access.base
        return self.f.offset(access.base, self.element, (1 - width) * self.parts, inbounds=False)

    def _alignment(self, access: Access) -> int:
        """Return the alignment of the lowest address of contiguous lanes."""
        return max(self.align, access.align) if access.stride > 0 else self.align

    def _pointers(self, access: Access, width: int) -> Value:
        steps = [lane * access.stride * self.parts for lane in range(width)]
        if access.offsets is None:
            fits = all(-(1 << 31) <= step < 1 << 31 for step in steps)
            return self.f.offset(
                access.base, self.element, constant_vector(steps, i32 if fits else llvm.i64), access.safe
            )
        offsets = access.offsets
        if self.parts == 2:
            offsets = self.f.shl(offsets, llvm.constant(1, offsets.type))
        if access.stride:
            offsets = self.f.add(offsets, constant_vector(steps, offsets.type.element))
        return self.f.offset(access.base, self.element, offsets, inbounds=False)

    def _element_mask(self, mask: Value, order: Sequence[int]) -> Value:
        """Expand a mask of lanes to a mask of the numbers in memory."""
        width = mask.type.count
        lanes = [0] * len(order)
        for position, slot in enumerate(order):
            lanes[slot] = position // self.parts
        return mask if lanes == list(range(width)) else self.f.shuffle(mask, None, lanes)

    def _pick(self, whole: Value, order: Sequence[int]) -> Value:
        return whole if list(order) == list(range(whole.type.count)) else self.f.shuffle(whole, None, order)

    def _merge(self, values: Sequence[Value], order: Sequence[int]) -> Value:
        width = values[0].type.count
        chosen = [0] * len(order)
        for position, slot in enumerate(order):
            lane, part = divmod(position, self.parts)
            chosen[slot] = lane + part * width
        if self.parts == 1 and chosen == list(range(width)):
            return values[0]
        return self.f.shuffle(values[0], values[1] if self.parts == 2 else None, chosen)

    # -- interleaved lanes -----------------------------------------------------------------------------------------

    def load_interleaved(
        self, base: Value, stride: int, offsets: Iterable[int], width: int, mask: Mask | None
    ) -> dict[int, list[Value]]:
        """Load, for each offset, lanes that are `stride` elements apart from `base` + offset on; return their numbers
        by offset."""
        f, apart = self.f, stride * self.parts
        wanted = sorted(set(offsets))
        used = (wanted[-1] + 1) * self.parts
        span = (width - 1) * apart + used
        # Vectors cover the span between the first and the last number that is needed, and no more.
        starts = [min(start, span - width) for start in range(0, span, width)]
        kind = vector(self.element, width)
        vectors = []
        for start in starts:
            address = self._part(base, start)
            if mask is None:
                vectors.append(f.load(kind, address, self.align))
                continue
            owners = [divmod(start + i, apart) for i in range(width)]
            bits = mask([lane if part < used else None for lane, part in owners])
            vectors.append(f.masked_load(kind, address, bits, self.align))

        def column(first: int) -> Value:
            at = range(first, first + width * apart, apart)
            return self._permute(vectors, [(n // width, n - starts[n // width]) for n in at])

        return {o: [column(o * self.parts + part) for part in range(self.parts)] for o in wanted}

    def store_interleaved(self, columns: Sequence[Value], base: Value, mask: Mask | None) -> None:
        """Store one number of each column after the other, lane by lane, from `base` on."""
        width, apart = columns[0].type.count, len(columns)
        for start in range(0, width * apart, width):
            owners = [divmod(start + i, apart) for i in range(width)]
            whole = self._permute(columns, [(column, lane) for lane, column in owners])
            address = self._part(base, start)
            if mask is None:
                self.f.store(whole, address, self.align)
            else:
                self.f.masked_store(whole, address, mask([lane for lane, _ in owners]), self.align)

    def _permute(self, vectors: Sequence[Value], chosen: Sequence[tuple[int, int]]) -> Value:
        """Build a vector from elements of several vectors, each given by the index of its vector and its lane."""
        width = len(chosen)
        first, *others = sorted({source for source, _ in chosen})
        result, order = vectors[first], [lane if source == first else i for i, (source, lane) in enumerate(chosen)]
        if not others:
            return self._pick(result, order)
        for other in others:
            order = [width + lane if source == other else order[i] for i, (source, lane) in enumerate(chosen)]
            result, order = self.f.shuffle(result, vectors[other], order), list(range(width))
        return result


def _order(width: int, parts: int, backwards: bool) -> list[int]:
    """Return, for each part of each lane, its index among the contiguous numbers in memory."""
    lanes = range(width - 1, -1, -1) if backwards else range(width)
    return [lane * parts + part for lane in lanes for part in range(parts)]

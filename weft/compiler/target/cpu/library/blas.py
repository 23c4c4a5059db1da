"""The code of products: tiles of a matrix, each one call of BLAS.

Our matrices are stored by rows and those of BLAS by columns, so what it computes is Cᵀ = Bᵀ Aᵀ. Sums are never split:
a tile has all of them, and the same bits whoever computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.compiler.target import llvm
from weft.compiler.target.cpu.library import guard
from weft.compiler.target.cpu.library.products import PRODUCT, VECTOR
from weft.compiler.target.cpu.library.writer import NUMBERS, TILES, Fortran
from weft.compiler.target.llvm import Function, Parameter, Value, constant, i64, ptr, void
from weft.compiler.target.target import Target

# The table of a product: left operand, right operand, result, numbers.
_OUT, _NUMBERS = 2, 3
# Numbers of a loop: its size, and strides of the left operand, the right one and the result.
_LOOP = 4


class Tiles(Fortran):
    """The loop over tiles: unpacks the number of a tile into where it is."""

    def __init__(self, f: Function, letter: str, names: Sequence[str]) -> None:
        super().__init__(f, NUMBERS[letter])
        table, self.begin, self.end = f.arguments
        self.table = [f.load(ptr, f.offset(table, ptr, n), 8) for n in range(3)]
        self.block = f.load(ptr, f.offset(table, ptr, _NUMBERS), 8)
        self.names = names
        self.numbers = {name: self.load(n) for n, name in enumerate(names)}

    def load(self, position: int | Value) -> Value:
        """A number of the block."""
        return self.f.load(i64, self.f.offset(self.block, i64, position), 8, invariant=True)

    def __getitem__(self, name: str) -> Value:
        return self.numbers[name]

    def split(self, number: Value, count: Value) -> tuple[Value, Value]:
        """Quotient and remainder."""
        return self.f.udiv(number, count), self.f.urem(number, count)

    def bases(self, number: Value) -> list[Value]:
        """Where the operands and the result of one turn of the loops around are, the last of which runs fastest."""
        f, none = self.f, constant(0, i64)
        with f.loop(none, self["loops"], carried=[number, none, none, none]) as n:
            left, *offsets = n.values
            position = f.sub(f.sub(self["loops"], constant(1, i64)), n)
            start = f.add(f.mul(position, constant(_LOOP, i64)), constant(len(self.names), i64))
            size, *strides = [self.load(f.add(start, constant(m, i64))) for m in range(_LOOP)]
            left, index = self.split(left, size)
            moved = [f.add(o, f.mul(index, s)) for o, s in zip(offsets, strides, strict=True)]
            n.give(left, *moved)
        return [self.at(base, offset) for base, offset in zip(self.table, n.results[1:], strict=True)]

    def run(self, work: Callable[[Value], None]) -> None:
        """Work on each tile, with the library's threads out of the way."""
        self.f.call(guard.ENTER, void)
        with self.f.loop(self.begin, self.end) as tile:
            work(tile)
        self.f.call(guard.LEAVE, void)
        self.f.ret()


def write_product(f: Function, letter: str) -> None:
    """Tiles of a product of matrices."""
    w = Tiles(f, letter, PRODUCT)
    one, nothing = w.scalar("one", 1.0), w.scalar("nothing", 0.0)

    def work(tile: Value) -> None:
        rest, across = w.split(tile, w["tiles across"])
        turn, down = w.split(rest, w["tiles down"])
        lhs, rhs, out = w.bases(turn)
        row, column = f.mul(down, w["tile rows"]), f.mul(across, w["tile columns"])
        rows = f.smin(f.sub(w["rows"], row), w["tile rows"])
        columns = f.smin(f.sub(w["columns"], column), w["tile columns"])
        w.blas(
            "gemm", w.character(w["rhs turn"]), w.character(w["lhs turn"]), columns, rows, w["summed"], one,
            w.at(rhs, f.mul(column, w["rhs step"])), w["rhs stride"],
            w.at(lhs, f.mul(row, w["lhs step"])), w["lhs stride"], nothing,
            w.at(out, f.add(f.mul(row, w["out stride"]), column)), w["out stride"],
        )  # fmt: skip

    w.run(work)


def write_vector(f: Function, letter: str) -> None:
    """Tiles of a product of a matrix and a vector."""
    w = Tiles(f, letter, VECTOR)
    one, nothing = w.scalar("one", 1.0), w.scalar("nothing", 0.0)
    turned = f.icmp("eq", w["turn"], constant(ord("T"), i64))
    left = f.icmp("eq", w["matrix"], constant(0, i64))

    def work(tile: Value) -> None:
        turn, number = w.split(tile, w["tiles"])
        lhs, rhs, out = w.bases(turn)
        first = f.mul(number, w["tile"])
        count = f.smin(f.sub(w["outputs"], first), w["tile"])
        matrix = w.at(f.select(left, lhs, rhs), f.mul(first, w["step"]))
        target = w.at(out, f.mul(first, w["out stride"]))
        # What was there is multiplied by zero, and not everyone stops at nan.
        with f.loop(constant(0, i64), count) as n:
            for part in range(w.number.parts):
                place = f.offset(w.at(target, f.mul(n, w["out stride"])), w.number.float, part)
                f.store(constant(0.0, w.number.float), place, w.number.float.bits // 8)
        w.blas(
            "gemv", w.character(w["turn"]), f.select(turned, w["summed"], count), f.select(turned, count, w["summed"]),
            one, matrix, w["stride"], f.select(left, rhs, lhs), w["vector stride"], nothing, target, w["out stride"],
        )  # fmt: skip

    w.run(work)


PRODUCTS = {"product": write_product, "product_vector": write_vector}


def write(name: str, letter: str, target: Target) -> str:
    """The module of a product."""
    module = llvm.Module(triple=target.triple, vector_bits=target.vector_bits or 128)
    parameters = [Parameter("table", ptr), Parameter("begin", i64), Parameter("end", i64)]
    PRODUCTS[name](module.function(f"weft_{name}_{letter}{TILES}", void, parameters), letter)
    return module.text()

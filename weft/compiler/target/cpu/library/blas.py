"""Code of matmuls: tiles of a matrix, each one call of BLAS.

Our matrices are row-major and those of BLAS column-major, so BLAS computes Cᵀ = Bᵀ Aᵀ. Sums are never split: a tile has
all terms, and the same bits whichever thread computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.compiler.target import llvm
from weft.compiler.target.cpu.library import guard
from weft.compiler.target.cpu.library.matmuls import MATMUL, MATVEC
from weft.compiler.target.cpu.library.writer import ELEMENT_TYPES, TILES, Fortran
from weft.compiler.target.llvm import Function, Parameter, Value, constant, i64, ptr, void
from weft.compiler.target.target import Target

# The table of a matmul: lhs, rhs, result, parameters.
_OUT, _PARAMETERS = 2, 3
# Number of parameters of a loop: its size, and the strides of lhs, rhs and result.
_LOOP = 4


class Tiles(Fortran):
    """Loop over tiles, which unpacks the index of a tile into addresses."""

    def __init__(self, f: Function, letter: str, names: Sequence[str]) -> None:
        super().__init__(f, ELEMENT_TYPES[letter])
        table, self.begin, self.end = f.arguments
        self.table = [f.load(ptr, f.offset(table, ptr, n), 8) for n in range(3)]
        self.block = f.load(ptr, f.offset(table, ptr, _PARAMETERS), 8)
        self.names = names
        self.parameters = {name: self.load(n) for n, name in enumerate(names)}

    def load(self, position: int | Value) -> Value:
        """Load a parameter of the block."""
        return self.f.load(i64, self.f.offset(self.block, i64, position), 8, invariant=True)

    def __getitem__(self, name: str) -> Value:
        return self.parameters[name]

    def split(self, index: Value, count: Value) -> tuple[Value, Value]:
        """Return quotient and remainder."""
        return self.f.udiv(index, count), self.f.urem(index, count)

    def bases(self, iteration: Value) -> list[Value]:
        """Return the addresses of operands and result for one iteration of the surrounding loops; the last loop is
        the fastest."""
        f, none = self.f, constant(0, i64)
        with f.loop(none, self["loops"], carried=[iteration, none, none, none]) as n:
            left, *offsets = n.values
            position = f.sub(f.sub(self["loops"], constant(1, i64)), n)
            start = f.add(f.mul(position, constant(_LOOP, i64)), constant(len(self.names), i64))
            size, *strides = [self.load(f.add(start, constant(m, i64))) for m in range(_LOOP)]
            left, index = self.split(left, size)
            sums = [f.add(o, f.mul(index, s)) for o, s in zip(offsets, strides, strict=True)]
            n.give(left, *sums)
        return [self.at(base, offset) for base, offset in zip(self.table, n.results[1:], strict=True)]

    def run(self, work: Callable[[Value], None]) -> None:
        """Write the loop over tiles, with the library limited to one thread."""
        self.f.call(guard.ENTER, void)
        with self.f.loop(self.begin, self.end) as tile:
            work(tile)
        self.f.call(guard.LEAVE, void)
        self.f.ret()


def write_matmul(f: Function, letter: str) -> None:
    """Write the tiles of a matrix product."""
    w = Tiles(f, letter, MATMUL)
    one, nothing = w.scalar("one", 1.0), w.scalar("nothing", 0.0)

    def work(tile: Value) -> None:
        rest, across = w.split(tile, w["tiles across"])
        iteration, down = w.split(rest, w["tiles down"])
        lhs, rhs, out = w.bases(iteration)
        row, column = f.mul(down, w["tile rows"]), f.mul(across, w["tile columns"])
        rows = f.smin(f.sub(w["rows"], row), w["tile rows"])
        columns = f.smin(f.sub(w["columns"], column), w["tile columns"])
        w.blas(
            "gemm", w.character(w["rhs transpose"]), w.character(w["lhs transpose"]), columns, rows, w["summed"], one,
            w.at(rhs, f.mul(column, w["rhs step"])), w["rhs stride"],
            w.at(lhs, f.mul(row, w["lhs step"])), w["lhs stride"], nothing,
            w.at(out, f.add(f.mul(row, w["out stride"]), column)), w["out stride"],
        )  # fmt: skip

    w.run(work)


def write_matvec(f: Function, letter: str) -> None:
    """Write the tiles of a matrix-vector product."""
    w = Tiles(f, letter, MATVEC)
    one, nothing = w.scalar("one", 1.0), w.scalar("nothing", 0.0)
    transposed = f.icmp("eq", w["transpose"], constant(ord("T"), i64))
    left = f.icmp("eq", w["matrix"], constant(0, i64))

    def work(tile: Value) -> None:
        iteration, index = w.split(tile, w["tiles"])
        lhs, rhs, out = w.bases(iteration)
        first = f.mul(index, w["tile"])
        count = f.smin(f.sub(w["outputs"], first), w["tile"])
        matrix = w.at(f.select(left, lhs, rhs), f.mul(first, w["step"]))
        target = w.at(out, f.mul(first, w["out stride"]))
        # BLAS multiplies the old contents by zero, and not every library treats that as an overwrite: a nan would
        # remain.
        with f.loop(constant(0, i64), count) as n:
            for part in range(w.element.parts):
                address = f.offset(w.at(target, f.mul(n, w["out stride"])), w.element.float, part)
                f.store(constant(0.0, w.element.float), address, w.element.float.bits // 8)
        w.blas(
            "gemv", w.character(w["transpose"]), f.select(transposed, w["summed"], count),
            f.select(transposed, count, w["summed"]),
            one, matrix, w["stride"], f.select(left, rhs, lhs), w["vector stride"], nothing, target, w["out stride"],
        )  # fmt: skip

    w.run(work)


MATMULS = {"product": write_matmul, "product_vector": write_matvec}


def write(name: str, letter: str, target: Target) -> str:
    """Return the LLVM module of a matmul."""
    module = llvm.Module(triple=target.triple, vector_bits=target.vector_bits or 128)
    parameters = [Parameter("table", ptr), Parameter("begin", i64), Parameter("end", i64)]
    MATMULS[name](module.function(f"weft_{name}_{letter}{TILES}", void, parameters), letter)
    return module.text()

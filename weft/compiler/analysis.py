"""Cost analysis of a compiled program: planned memory, and executed operations."""

from __future__ import annotations

from typing import Any

from weft.base.dataclass import dataclass
from weft.compiler.fuse.cost import equation_cost, equation_flops
from weft.compiler.fuse.fusion import fusion
from weft.compiler.program.ir import Program
from weft.ir.jaxpr import Equation, Jaxpr, subjaxprs
from weft.primitives.elementwise.elementwise import Elementwise


@dataclass(frozen=True)
class MemoryAnalysis:
    """Bytes of a compiled program. Temporaries are planned, so a run takes exactly these, and memory for tapes and
    callbacks besides."""

    argument_size_in_bytes: int
    output_size_in_bytes: int
    alias_size_in_bytes: int
    temp_size_in_bytes: int
    constant_size_in_bytes: int
    generated_code_size_in_bytes: int

    @property
    def peak_memory_in_bytes(self) -> int:
        """Bytes that are live during a run."""
        live = self.argument_size_in_bytes + self.output_size_in_bytes - self.alias_size_in_bytes
        return live + self.temp_size_in_bytes + self.constant_size_in_bytes


def memory_analysis(program: Program, code_bytes: int) -> MemoryAnalysis:
    """Return the memory that one run of the program takes."""
    shared = sum(slot.size for slot, alias in zip(program.results, program.aliases, strict=True) if alias is not None)
    return MemoryAnalysis(
        sum(slot.size for slot in program.arguments),
        sum(slot.size for slot in program.results),
        shared,
        program.temporary_bytes,
        program.constant_bytes,
        code_bytes,
    )


def cost_analysis(fused: Jaxpr) -> dict[str, float]:
    """Count the operations and bytes of one run: `flops` are additions, multiplications and the like,
    `transcendentals` functions that are computed by polynomials, `bytes accessed` those that kernels read and write. A
    loop of unknown length counts as one iteration, a conditional as its costlier branch."""
    flops, functions = _operations(fused)
    bytes_accessed = sum(equation_cost(e).bytes for e in fused.eqns)
    return {"flops": flops, "transcendentals": functions, "bytes accessed": float(bytes_accessed)}


def _operations(jaxpr: Jaxpr) -> tuple[float, float]:
    """Count the flops and functions of a jaxpr."""
    flops = functions = 0.0
    for equation in jaxpr.eqns:
        more, expensive = count_operations(equation)
        flops, functions = flops + more, functions + expensive
    return flops, functions


def count_operations(equation: Equation) -> tuple[float, float]:
    """Count the flops and functions of one equation, with its sub-jaxprs."""
    primitive: Any = equation.primitive
    if primitive is fusion:
        return _operations(equation.params["jaxpr"])
    if primitive.higher_order:
        inner = [_operations(p) for p in subjaxprs(equation.params)]
        if primitive.exclusive:
            return max(inner, default=(0.0, 0.0))
        times = primitive.iterations(equation.params)
        return times * sum(a for a, _ in inner), times * sum(b for _, b in inner)
    if not primitive.weight:
        return 0.0, 0.0
    count = equation_flops(equation)
    if isinstance(primitive, Elementwise) and primitive.weight > 1:
        elements = count / primitive.weight
        return (elements, 0.0) if primitive.weight <= 4 else (0.0, elements)
    return count, 0.0

"""What a compiled program costs: memory as it is planned, and operations as they are executed."""

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
    """Bytes of a compiled program. Temporaries are planned, so this is what a run takes; tapes and what callbacks
    allocate come on top."""

    argument_size_in_bytes: int
    output_size_in_bytes: int
    alias_size_in_bytes: int
    temp_size_in_bytes: int
    constant_size_in_bytes: int
    generated_code_size_in_bytes: int

    @property
    def peak_memory_in_bytes(self) -> int:
        """All that is alive during a run."""
        live = self.argument_size_in_bytes + self.output_size_in_bytes - self.alias_size_in_bytes
        return live + self.temp_size_in_bytes + self.constant_size_in_bytes


def memory_analysis(program: Program, code_bytes: int) -> MemoryAnalysis:
    """The memory that one run of the program takes."""
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
    """Operations and bytes of one run: `flops` counts additions, multiplications and the like, `transcendentals`
    functions that are computed by polynomials, `bytes accessed` what kernels read and write. A loop of unknown length
    counts as one iteration, a branch as the costlier one."""
    flops, functions = _operations(fused)
    bytes_accessed = sum(equation_cost(e).bytes for e in fused.eqns)
    return {"flops": flops, "transcendentals": functions, "bytes accessed": float(bytes_accessed)}


def _operations(jaxpr: Jaxpr) -> tuple[float, float]:
    flops = functions = 0.0
    for equation in jaxpr.eqns:
        more, expensive = operations_of(equation)
        flops, functions = flops + more, functions + expensive
    return flops, functions


def operations_of(equation: Equation) -> tuple[float, float]:
    """Flops and functions of one equation, with its sub-jaxprs."""
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

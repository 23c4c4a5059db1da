"""Dynamic shapes: a jaxpr with symbolic sizes is compiled once, and specialised to Programs at concrete sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from weft.base.compile_options import CompileOptions, log_compilation
from weft.base.errors import JaxprTypeError, ShapeMismatchError
from weft.base.spans import measured
from weft.compiler import pipeline
from weft.compiler.compilation import Compilation, Details
from weft.compiler.compile import compile_program
from weft.compiler.fuse.fusion import is_fusion
from weft.compiler.program.assign import assign
from weft.compiler.program.build import build
from weft.compiler.program.cost import estimate
from weft.compiler.program.ir import Program
from weft.compiler.program.prepared import PreparedPrograms
from weft.compiler.program.program_at_sizes import ProgramAtSizes
from weft.compiler.target.target import Target
from weft.compiler.verify import verify_program
from weft.indexing.expression import Expression, Symbol, value_range
from weft.indexing.guards import compile_expression
from weft.indexing.inconclusive import InconclusiveDimensionError
from weft.ir.at_sizes import AtSizes, JaxprAtSizes, symbols_of_jaxpr
from weft.ir.jaxpr import Equation, Jaxpr, subjaxprs
from weft.primitives.families import Reduction


def compile_instance(
    jaxpr: JaxprAtSizes, donated: Sequence[bool], target: Target, options: CompileOptions, flagged: bool
) -> Compilation:
    """Compile a jaxpr at concrete sizes. The jaxpr with symbolic sizes goes through the passes once."""
    general, seconds = jaxpr.general, dict[str, float]()
    with measured(seconds, "compile", "passes"):
        key = ("family", target, flagged, options)
        stages, fused = general.memoize(key, lambda: _run_passes(general, target, options, flagged))
    if fused is None or fused.memoize("single", lambda: _reduces_single(fused))(jaxpr.sizes):
        compilation = compile_program(jaxpr.plain(), donated, target, options, flagged)
        compilation.traced = jaxpr
        return compilation
    with measured(seconds, "compile", "emit"):
        prepared = fused.memoize(("prepared", donated, target), lambda: PreparedPrograms(fused, donated, target))
        found = prepared.at(jaxpr.sizes)
    program: Program
    details: Details
    if found is not None:
        program, details = found, DetailsAtSizes(found, stages)
    else:
        with measured(seconds, "compile", "emit"):
            outline = OutlineAtSizes(jaxpr.sizes).jaxpr(fused)
            program, details = build(outline, donated, target, sizes=jaxpr.sizes), Details(outline, stages)
        with measured(seconds, "compile", "memory"):
            program = assign(program)
        program.nanoseconds = estimate(program, target.kernel)
    if options.verifies:
        verify_program(program, target.memory_spaces)
    return Compilation(jaxpr, tuple(donated), program, target, options, details, seconds, flagged=flagged)


def _run_passes(
    general: Jaxpr, target: Target, options: CompileOptions, flagged: bool
) -> tuple[list[pipeline.Stage], Jaxpr | None]:
    """Run the passes over a jaxpr with symbolic sizes, and return the stages and the fused jaxpr.

    The fused jaxpr is None if a pass needs concrete sizes, so that each size is compiled separately. A pairwise
    reduction is unrolled for its size, for example, and a long Fourier transform is split by its factors. And types
    that agree for the sizes that guards allow may not agree symbolically (`x + x.reshape(-1, 2).reshape(-1)`: `n // 2 *
    2` is n for even sizes only).
    """
    stages: list[pipeline.Stage] = []
    steps = pipeline.FLAGGED_PASSES if flagged else pipeline.ALL_PASSES
    try:
        return stages, pipeline.run(general, target, steps, options, log=stages)
    except (InconclusiveDimensionError, JaxprTypeError, ShapeMismatchError) as error:
        log_compilation(f"{general.name or 'A program'} is compiled for each size: {error}")
        return stages, None


def _reduces_single(fused: Jaxpr) -> Callable[[Mapping[Symbol, int]], bool]:
    """Return a predicate of sizes: whether some fusion reduces single elements, such as `x[1:].sum()` of two. That is
    simplified to no reduction, so that the program has other fusions."""
    symbols = symbols_of_jaxpr(fused)
    texts = [" and ".join(f"({d}) == 1" for d in dimensions) for dimensions in _reduction_dimensions(fused)]
    if not texts:
        return lambda sizes: False
    any_of = compile_expression(" or ".join(f"({text})" for text in dict.fromkeys(texts)), symbols)
    return lambda sizes: any_of(*[sizes[symbol] for symbol in symbols])


def _reduction_dimensions(jaxpr: Jaxpr) -> Iterator[list[Expression]]:
    """Yield the reduced dimensions of each reduction that is a hero, if all of them may have size 1."""
    for equation in jaxpr.eqns:
        if not is_fusion(equation):
            for body in subjaxprs(equation.params):
                yield from _reduction_dimensions(body)
            continue
        index = equation.params["hero"]
        hero = None if index is None else equation.params["jaxpr"].eqns[index]
        if hero is not None and isinstance(hero.primitive, Reduction):
            shape = hero.invars[0].aval.shape
            reduced = [shape[axis] for axis in hero.params["axes"]]
            symbolic = [d for d in reduced if isinstance(d, Expression)]
            if all(1 in value_range(d) for d in reduced):
                yield symbolic


class DetailsAtSizes(Details):
    """Intermediate forms of a jaxpr at concrete sizes; the fused jaxpr is made when it is first read."""

    def __init__(self, program: ProgramAtSizes, stages: list[pipeline.Stage]) -> None:
        self._program, self.stages = program, stages

    @property
    def fused(self) -> Jaxpr:  # type: ignore[override]
        return self._program.fused


class OutlineAtSizes(AtSizes):
    """Specialises a fused jaxpr to sizes, except the jaxprs of its fusions: their kernels are for a class of sizes."""

    def jaxpr(self, jaxpr: Jaxpr) -> Jaxpr:
        return self.outline(jaxpr, {}, self._params)

    def _params(self, equation: Equation) -> dict[str, Any]:
        return equation.params if is_fusion(equation) else self.params(equation.params)

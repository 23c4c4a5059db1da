"""The whole compilation from a traced jaxpr to steps. Read `pipeline` for the passes, `program` for the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.base.compile_options import DEFAULT, CompileOptions
from weft.base.spans import measured
from weft.compiler import dump, pipeline
from weft.compiler.compilation import Compilation, Details, Tuner
from weft.compiler.program.assign import assign
from weft.compiler.program.build import build
from weft.compiler.program.cost import estimate
from weft.compiler.program.ir import Begin
from weft.compiler.schedules import Schedules
from weft.compiler.target.target import Target
from weft.compiler.verify import verify_program
from weft.ir.jaxpr import Jaxpr


def compile_program(
    jaxpr: Jaxpr,
    donated: Sequence[bool],
    target: Target,
    options: CompileOptions = DEFAULT,
    flagged: bool = False,
    tune: Tuner | None = None,
    schedules: Mapping[str, str] | None = None,
    begin: Begin | None = None,
) -> Compilation:
    """Compile a jaxpr whose constants are arguments: passes, fusion, kernels, steps and memory.

    Args:
        jaxpr: the traced program.
        donated: which arguments' memory results may take.
        target: the machine.
        options: the options of the compiler.
        flagged: whether checks set one flag for the whole program, instead of a trap for each.
        tune: called with the fused jaxpr, before contractions get their schedules.
        schedules: schedules by key, which have priority over pinned ones.
        begin: called with each step that is built, so that its kernel can be compiled meanwhile.
    """
    stages: list[pipeline.Stage] = []
    seconds: dict[str, float] = {}
    folder = pipeline.dump_folder(jaxpr.name)
    with measured(seconds, "compile", "passes"):
        steps = pipeline.FLAGGED_PASSES if flagged else pipeline.ALL_PASSES
        fused = pipeline.run(jaxpr, target, steps, options, log=stages, folder=folder)
    if tune is not None:
        with measured(seconds, "compile", "tuning"):
            tune(fused, target)
    with measured(seconds, "compile", "emit"):
        program = build(fused, donated, target, Schedules(target, schedules), begin=begin)
    with measured(seconds, "compile", "memory"):
        program = assign(program)
    if options.verifies:
        verify_program(program, target.memory_spaces)
    program.nanoseconds = estimate(program, target.kernel)
    if folder is not None:
        dump.write_program(folder, program, seconds)
    details = Details(fused, stages)
    return Compilation(jaxpr, tuple(donated), program, target, options, details, seconds, folder, flagged)

"""The whole way from a traced program to something that runs. Read `pipeline` for passes, `program` for the steps."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from weft.base.spans import measured
from weft.compiler import dump, pipeline
from weft.compiler.program.assign import assign
from weft.compiler.program.build import build
from weft.compiler.program.ir import Program
from weft.compiler.target.cpu.features import Features, host
from weft.ir.jaxpr import Jaxpr


@dataclass
class Compilation:
    """What became of a program on its way, and how long each part took; where it is dumped, if it is."""

    traced: Jaxpr
    fused: Jaxpr
    program: Program
    features: Features
    stages: list[pipeline.Stage] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    folder: pathlib.Path | None = None


def compile_program(jaxpr: Jaxpr, donated: Sequence[bool] = (), features: Features | None = None) -> Compilation:
    """Passes, fusion, kernels, steps and memory for a program whose constants are arguments."""
    features = features or host()
    stages: list[pipeline.Stage] = []
    seconds: dict[str, float] = {}
    folder = pipeline.dump_folder(jaxpr.name)
    with measured(seconds, "compile", "passes"):
        fused = pipeline.run(jaxpr, pipeline.ALL_STEPS, log=stages, folder=folder)
    with measured(seconds, "compile", "emit"):
        program = build(fused, donated, max(features.vector_bits // 8, 4))
    with measured(seconds, "compile", "memory"):
        program = assign(program)
    if folder is not None:
        dump.write_program(folder, program, seconds)
    return Compilation(jaxpr, fused, program, features, stages, seconds, folder)

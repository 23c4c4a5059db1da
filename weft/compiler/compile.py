"""The whole way from a traced program to something that runs. Read `pipeline` for passes, `program` for the steps."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from weft.compiler import pipeline
from weft.compiler.program.assign import assign
from weft.compiler.program.build import build
from weft.compiler.program.ir import Program
from weft.compiler.target.cpu.features import Features, host
from weft.ir.jaxpr import Jaxpr


@dataclass
class Compilation:
    """What became of a program on its way, and how long each part took."""

    traced: Jaxpr
    fused: Jaxpr
    program: Program
    features: Features
    stages: list[pipeline.Stage] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)


def compile_program(
    jaxpr: Jaxpr, donated: Sequence[bool] = (), features: Features | None = None
) -> Compilation:
    """Passes, fusion, kernels, steps and memory for a program whose constants are arguments."""
    features = features or host()
    stages: list[pipeline.Stage] = []
    started = time.perf_counter()
    fused = pipeline.run(jaxpr, pipeline.ALL_STEPS, log=stages)
    passed = time.perf_counter()
    program = assign(build(fused, donated, max(features.vector_bits // 8, 4)))
    seconds = {"passes": passed - started, "emit": time.perf_counter() - passed}
    return Compilation(jaxpr, fused, program, features, stages, seconds)

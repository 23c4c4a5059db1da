"""The compiler for the host, for tests that do not depend on the machine, and targets of other machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from weft.base.compile_options import get_compile_options
from weft.compiler import compilation, compile, load, pipeline
from weft.compiler.fuse import driver, verify
from weft.compiler.partition import partition as partitioner
from weft.compiler.partition.partition import PartitionedJaxpr
from weft.compiler.passes import hoist as passes_hoist
from weft.compiler.program import interpreter
from weft.compiler.program.ir import Program
from weft.compiler.target.costs import FusionLimits
from weft.compiler.target.cpu.calls import NativeRoutines
from weft.compiler.target.cpu.targets import host, of_flags
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Jaxpr

LINUX = "x86_64-unknown-linux-gnu"
AVX512 = of_flags(LINUX, "skylake-avx512", dict.fromkeys(("avx2", "avx512f", "avx512vl", "avx512bw", "avx512dq"), True))
AVX2 = of_flags(LINUX, "haswell", {"avx2": True})


def compile_program(
    jaxpr: Jaxpr, donated: Sequence[bool] = (), target: Target | None = None, **options: Any
) -> compilation.Compilation:
    return compile.compile_program(jaxpr, donated, target or host(), get_compile_options(), **options)


def compilation_of(jaxpr: Jaxpr, donated: Sequence[bool] = (), **options: Any) -> compilation.Compilation:
    return load.load_or_compile(jaxpr, donated, host(), get_compile_options(), **options)


def run_passes(jaxpr: Jaxpr, steps: Sequence[pipeline.Pass] = pipeline.EXACT_PASSES, **options: Any) -> Jaxpr:
    return pipeline.run(jaxpr, host(), steps, get_compile_options(), **options)


def partition(*args: Any, **named: Any) -> PartitionedJaxpr:
    return partitioner.partition(*args, **named, options=get_compile_options())


def fuse(jaxpr: Jaxpr, limits: FusionLimits | None = None) -> Jaxpr:
    return driver.fuse(jaxpr, host() if limits is None else replace(host(), fusion=limits))


def refusals(jaxpr: Jaxpr) -> tuple[Any, ...]:
    return driver.refusals(jaxpr, host())


def verify_fusion_pass(before: Jaxpr, after: Jaxpr) -> Jaxpr:
    return verify.verify_fusion_pass(before, after, host())


def hoist(jaxpr: Jaxpr) -> Jaxpr:
    return passes_hoist.hoist(jaxpr, host())


def interpret(program: Program, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    return interpreter.run(program, arrays, NativeRoutines())

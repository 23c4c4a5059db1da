"""The passes of the compiler, in order: read this file first.

Every pass is a pure function from jaxpr to jaxpr. A `Spec` describes the form of a jaxpr between two passes; it is
checked, with the types of every equation, if `CompileOptions.verifies`. With `WEFT_DUMP=folder` in the environment each
jaxpr gets a folder in there, with its text after each pass (`05_canonicalize.txt`) and the time that the pass took;
`dump` adds the Program and its kernels.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from weft.base.compile_options import DEFAULT, CompileOptions
from weft.base.dataclass import dataclass
from weft.base.errors import InternalError
from weft.base.spans import span
from weft.compiler.fuse.driver import fuse
from weft.compiler.fuse.fusion import is_fusion
from weft.compiler.fuse.verify import verify_equation
from weft.compiler.passes.accumulate import accumulate
from weft.compiler.passes.canonicalize import canonicalize
from weft.compiler.passes.checks import insert_checks
from weft.compiler.passes.choose_platform import choose_platform
from weft.compiler.passes.compose import compose, define
from weft.compiler.passes.decompose import decompose
from weft.compiler.passes.defer import defer
from weft.compiler.passes.drop_dead import drop_dead
from weft.compiler.passes.flags import insert_flags
from weft.compiler.passes.fold_constants import fold_constants
from weft.compiler.passes.hoist import hoist
from weft.compiler.passes.inline import inline
from weft.compiler.passes.merge_equal import merge_equal
from weft.compiler.passes.orient import orient
from weft.compiler.passes.simplify import simplify
from weft.compiler.passes.split_transforms import split_transforms
from weft.compiler.passes.vector_matmuls import sum_vector_matmuls
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Equation, Jaxpr, Literal, subjaxprs
from weft.ir.printer import equation_text, to_text
from weft.ir.verifier import verify

# --------------------------------------------------------------------------------------------------------------- forms


@dataclass(frozen=True)
class Spec:
    """The form of a jaxpr: what holds of every equation, in sub-jaxprs too."""

    name: str
    # What an equation does wrong, or None.
    objection: Callable[[Equation], str | None]
    stronger_than: Spec | None = None

    def check(self, jaxpr: Jaxpr, target: Target) -> None:
        """Raise unless the jaxpr is well formed and has this form."""
        verify(jaxpr)
        self._check_equations(jaxpr, target)

    def _check_equations(self, jaxpr: Jaxpr, target: Target) -> None:
        for equation in jaxpr.eqns:
            spec: Spec | None = self
            while spec is not None:
                problem = spec.objection(equation)
                if problem is not None:
                    raise InternalError(
                        f"The program is not {spec.name}: {problem}.", stage=spec.name, text=equation_text(equation)
                    )
                spec = spec.stronger_than
            for inner in subjaxprs(equation.params):
                self._check_equations(inner, target)


@dataclass(frozen=True)
class Fused(Spec):
    """The form after fusion, in which equations are kernels, calls of libraries, control flow or callbacks."""

    def _check_equations(self, jaxpr: Jaxpr, target: Target) -> None:
        for equation in jaxpr.eqns:
            verify_equation(equation, target)
            if not is_fusion(equation):
                for inner in subjaxprs(equation.params):
                    self._check_equations(inner, target.inside(equation))


def no_objection(equation: Equation) -> str | None:
    return None


def is_call(equation: Equation) -> str | None:
    return f"{equation.primitive.name} is a call" if equation.primitive.opens is not None else None


def is_defined_by_others(equation: Equation) -> str | None:
    primitive = equation.primitive
    if primitive.identity or primitive.define(equation) is not None:
        return f"{primitive.name} is defined by other operations"
    return None


def has_scalars(equation: Equation) -> str | None:
    if equation.primitive.name == "squeeze":
        return "squeeze is a reshape"
    if not equation.primitive.pointwise:
        return None
    shape = equation.outvars[0].aval.shape  # type: ignore[attr-defined]
    for i, atom in enumerate(equation.invars):
        if type(atom) is not Literal and atom.aval.shape != shape:  # type: ignore[attr-defined]
            return f"operand {i} of {equation.primitive.name} does not have the shape of the result"
    return None


TRACED = Spec("traced", no_objection)
OPEN = Spec("open", is_call, TRACED)
PRIMITIVE = Spec("primitive", is_defined_by_others, OPEN)
CANONICAL = Spec("canonical", has_scalars, PRIMITIVE)
FUSED = Fused("fused", no_objection)

# --------------------------------------------------------------------------------------------------------------- steps


@dataclass(frozen=True)
class Pass:
    """Pass with the form that it needs and the form that it makes.

    A pass that is `for_target` takes the machine too, one that is `for_options` takes the options of the compiler.
    """

    function: Callable[..., Jaxpr]
    needs: Spec
    makes: Spec
    for_target: bool = False
    for_options: bool = False

    @property
    def name(self) -> str:
        return self.function.__name__

    def run(self, jaxpr: Jaxpr, target: Target, options: CompileOptions = DEFAULT) -> Jaxpr:
        """Apply the pass."""
        arguments = (*[target][: self.for_target], *[options][: self.for_options])
        return self.function(jaxpr, *arguments)


# All passes over a jaxpr before kernels are emitted, in this order.
ALL_PASSES = (
    Pass(inline, needs=TRACED, makes=OPEN),  # calls opened
    Pass(choose_platform, needs=OPEN, makes=OPEN, for_target=True),  # what depends on the kind of device alone
    Pass(drop_dead, needs=OPEN, makes=OPEN),  # before the work grows
    Pass(insert_checks, needs=OPEN, makes=OPEN, for_options=True),  # before operations of the user disappear
    Pass(split_transforms, needs=OPEN, makes=OPEN),  # long Fourier transforms by short ones; they round otherwise
    Pass(decompose, needs=OPEN, makes=PRIMITIVE),  # composites and random bits by other operations
    Pass(define, needs=PRIMITIVE, makes=PRIMITIVE, for_target=True),  # by what the target's libraries have
    Pass(canonicalize, needs=PRIMITIVE, makes=CANONICAL),  # broadcasts explicit, literals right
    Pass(fold_constants, needs=CANONICAL, makes=CANONICAL),
    Pass(simplify, needs=CANONICAL, makes=CANONICAL),
    Pass(merge_equal, needs=CANONICAL, makes=CANONICAL),
    Pass(accumulate, needs=CANONICAL, makes=CANONICAL),  # carries of loops, at the slices that change
    Pass(hoist, needs=CANONICAL, makes=CANONICAL, for_target=True),  # loop-invariant equations, before loops
    Pass(drop_dead, needs=CANONICAL, makes=CANONICAL),
    Pass(defer, needs=CANONICAL, makes=CANONICAL),  # contractions summed by loops, after them; may round otherwise
    Pass(orient, needs=CANONICAL, makes=CANONICAL),  # no transposes around contractions; so may these
    Pass(sum_vector_matmuls, needs=CANONICAL, makes=CANONICAL, for_target=True),  # few vectors times a matrix
    Pass(compose, needs=CANONICAL, makes=CANONICAL, for_target=True),  # what one call of a library computes
    Pass(fuse, needs=CANONICAL, makes=FUSED, for_target=True, for_options=True),
)
# Those of them that change no bit, up to fusion.
_ROUNDING_PASSES = (split_transforms, define, defer, orient, sum_vector_matmuls, compose)
EXACT_PASSES = tuple(step for step in ALL_PASSES if step.function not in (*_ROUNDING_PASSES, fuse))
# All of them with one flag for all checks.
FLAGGED_PASSES = tuple(replace(s, function=insert_flags) if s.function is insert_checks else s for s in ALL_PASSES)


@dataclass(frozen=True)
class Stage:
    """The jaxpr after one step."""

    name: str
    seconds: float
    changed: bool
    jaxpr: Jaxpr

    @property
    def text(self) -> str:
        """The jaxpr, with the user's lines."""
        return to_text(self.jaxpr, source=True)


def run(
    jaxpr: Jaxpr,
    target: Target,
    steps: Sequence[Pass] = EXACT_PASSES,
    options: CompileOptions = DEFAULT,
    *,
    log: list[Stage] | None = None,
    check: bool | None = None,
    folder: pathlib.Path | None = None,
) -> Jaxpr:
    """Run passes over a jaxpr.

    Args:
        jaxpr: the program.
        target: the machine that it is compiled for.
        steps: the passes.
        options: the options of the compiler.
        log: gets the stage after each pass.
        check: whether the form of the jaxpr is checked between passes; None: as `options` say.
        folder: gets the text after each pass; None: a new folder if WEFT_DUMP is set.
    """
    check = options.verifies if check is None else check
    folder = dump_folder(jaxpr.name) if folder is None else folder
    if folder is not None:
        (folder / "00_traced.txt").write_text(to_text(jaxpr, source=True) + "\n")
    for position, step in enumerate(steps, 1):
        if check:
            step.needs.check(jaxpr, target)
        start = time.perf_counter()
        with span("compile", step.name):
            after = step.run(jaxpr, target, options)
        stage = Stage(step.name, time.perf_counter() - start, after is not jaxpr, after)
        if check:
            step.makes.check(after, target)
        if log is not None:
            log.append(stage)
        if folder is not None:
            (folder / f"{position:02d}_{step.name}.txt").write_text(stage_text(stage))
        jaxpr = after
    return jaxpr


def stage_text(stage: Stage) -> str:
    """Format a stage for a dump."""
    head = f"# {stage.name}, {stage.seconds * 1e3:.3f} ms"
    return f"{head}\n{stage.text}\n" if stage.changed else f"{head} (unchanged)\n"


_dump_count = itertools.count()


def dump_folder(name: str) -> pathlib.Path | None:
    """Make a folder for the texts of one jaxpr, if WEFT_DUMP is set."""
    root = os.environ.get("WEFT_DUMP")
    if not root:
        return None
    safe = re.sub(r"\W+", "_", name).strip("_") or "program"
    folder = pathlib.Path(root) / f"{next(_dump_count):03d}_{safe}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder

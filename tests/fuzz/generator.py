"""Random programs from a seed: Python source, arguments, and how to run it.

The same seed generates the same text everywhere. `python -m tests.fuzz SEED` prints it. `docs/design/testing.md`
describes what is generated and what must hold of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import weft
from tests.fuzz import numbers, table
from tests.fuzz.contractions import LAPACK
from tests.fuzz.draw import WEIGHTS, Draw, Settings, Text, literal, namespace
from weft.base import dtypes
from weft.errors import CustomRuleError, MissingRuleError

SIZES = (0, 1, 1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 9, 16, 17)
LARGE_SIZES = (1, 2, 3, 8, 31, 33, 64, 100, 128, 257)
MOST, MOST_LARGE = 300, 12_000
STAGES = ("grad", "grad", "jvp", "vmap", "vmap", "jit", "checkpoint")
NAMES = namespace("weft")


@dataclass
class Program:
    """Text of a program, which defines `main`, with arrays for its arguments and the settings of the run."""

    seed: int
    text: str
    arguments: list[np.ndarray]
    donated: tuple[bool, ...]
    wide: bool
    exact: bool
    checks: bool
    # The transformations that `main` is, outermost first; "plain" if there are none.
    stages: tuple[str, ...]

    @contextlib.contextmanager
    def settings(self) -> Iterator[None]:
        with weft.enable_x64(self.wide), weft.checks("all" if self.checks else "off"):
            yield

    def function(self, names: dict[str, Any] | None = None) -> Callable[..., Any]:
        """Return `main`, over the modules of Weft or of another library (see `namespace`)."""
        found = dict(NAMES if names is None else names)
        exec(compile(self.text, f"<program of seed {self.seed}>", "exec"), found)
        return found["main"]


# A program whose drawing or tracing ends with one of these asks for a derivative that there is not.
NO_RULE = (MissingRuleError, CustomRuleError)


class DrawError(Exception):
    """Weft refused a line while the program was drawn; `text` is what there was of it."""

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


def generate(seed: int, most: int | None = None) -> Program:
    """Generate the program of a seed; with `most`, one whose sizes are at most that."""
    rng = np.random.default_rng(seed)
    large, wide, exact = rng.random() < 0.04, bool(rng.random() < 0.2), bool(rng.random() < 0.6)
    sizes = [int(s) for s in rng.choice(LARGE_SIZES if large else SIZES, 4)]
    if most is not None:
        sizes = [min(s, most) for s in sizes]
    depth = int(rng.choice((0, 0, 0, 1, 1, 1, 1, 2, 2, 3)))
    stages = tuple(STAGES[int(n)] for n in rng.integers(len(STAGES), size=depth))
    settings = Settings(
        sizes=tuple(sizes),
        most=MOST_LARGE if large else MOST,
        dtypes=numbers.WIDE if wide else numbers.NARROW,
        exact=exact,
        wide=wide,
        derivatives="grad" in stages or "jvp" in stages,
        array=numbers.small_integers if exact else numbers.edge_numbers,
        choose=table.choose,
    )
    draw = Draw(rng, settings, dict(NAMES))
    types = [(draw.shape(), draw.dtype("f") if n == 0 else draw.dtype()) for n in range(draw.between(1, 4))]
    if draw.flag(0.4):
        # What linear algebra takes.
        side = draw.between(1, 4)
        types.append(((side, side), draw.one_of([d for d in LAPACK if d in settings.dtypes])))
    arrays = [settings.array(rng, shape, dtype) for shape, dtype in types]
    length, results = draw.one_of((3, 4, 6, 8, 10, 12)), draw.between(1, 2)
    donated = tuple(draw.flag(0.3) for _ in types)
    checks = draw.flag(0.08)

    def finish(inner: Draw) -> str:
        # Results may be arguments, or the same twice; what nobody reads would be dead code.
        return literal((*inner.unread()[-4:], *(inner.result() for _ in range(results))))

    with weft.enable_x64(wide), weft.checks("off"):
        body = draw.body(length, finish)
        try:
            weft.eval_shape(draw.names[body], *arrays)
        except NO_RULE:
            raise
        except Exception as error:
            raise DrawError(f"{type(error).__name__}: {error}", "\n".join(draw.lines)) from error
        staged = Staged(draw, body, arrays)
        for stage in stages[::-1]:
            staged.apply(stage)
    draw.statement(f"main = {staged.name}")
    flags = (donated + (False,) * len(staged.arrays))[: len(staged.arrays)]
    text = "\n".join(draw.lines)
    return Program(seed, text, staged.arrays, flags, wide, exact, checks, stages or ("plain",))


class Staged:
    """Function in the text of a program, with arrays for it, that transformations are applied to."""

    def __init__(self, draw: Draw, name: str, arrays: Sequence[np.ndarray]) -> None:
        self.draw, self.name, self.arrays = draw, name, list(arrays)

    def define(self, text: str) -> None:
        name = self.draw.fresh("f")
        self.draw.statement(text.replace("NAME", name))
        self.name = name

    def smooth(self) -> tuple[int, ...]:
        """Return the arguments to differentiate with respect to."""
        return tuple(n for n, a in enumerate(self.arrays) if dtypes.kind(a.dtype) == "f" and a.dtype.itemsize > 1)

    def results(self) -> list[Any]:
        """Shapes and dtypes of the results."""
        return weft.tree.leaves(weft.eval_shape(self.draw.names[self.name], *self.arrays))

    def apply(self, stage: str) -> None:
        if stage in ("grad", "jvp") and not self.smooth():
            return
        match stage:
            case "grad":
                self.grad()
            case "jvp":
                self.jvp()
            case "vmap":
                self.vmap()
            case _:
                self.define(f"NAME = lib.{stage}({self.name})")

    def total(self) -> str:
        """Return a function that computes the weighted sum of all float results."""
        parts = []
        for n, result in enumerate(self.results()):
            kind = dtypes.kind(result.dtype)
            if kind in "fc" and result.size:
                real = "np.real" if kind == "c" else ""
                shape = WEIGHTS.format(tuple(result.shape))
                parts.append(f"np.sum({real}(r[{n}]).astype(onp.float32) * {shape})")
        name = self.draw.fresh("f")
        text = " + ".join(parts) or "onp.float32(0)"
        self.draw.statement(
            f"def {name}(*args):\n    r = lib.tree_util.tree_leaves({self.name}(*args))\n    return np.asarray({text})"
        )
        return name

    def grad(self) -> None:
        which = self.draw.one_of(("grad", "value_and_grad"))
        self.define(f"NAME = lib.{which}({self.total()}, {self.smooth()})")

    def jvp(self) -> None:
        smooth, count = self.smooth(), len(self.arrays)
        whole = ", ".join(f"moving[{smooth.index(n)}]" if n in smooth else f"args[{n}]" for n in range(count))
        floating = [n for n, r in enumerate(self.results()) if dtypes.kind(r.dtype) in "fc"]
        results = f"lib.tree_util.tree_leaves({self.name}({whole}))"
        at = tuple(Text(f"args[{n}]") for n in smooth)
        self.define(
            "def NAME(*args):\n"
            f"    moved = lambda *moving: (lambda r: [r[n] for n in {floating}])({results})\n"
            f"    return lib.jvp(moved, {literal(at)}, tuple(args[{count}:]))"
        )
        self.arrays += [
            self.draw.settings.array(self.draw.rng, self.arrays[n].shape, self.arrays[n].dtype) for n in smooth
        ]

    def vmap(self) -> None:
        draw = self.draw
        axes = [draw.below(a.ndim + 1) if draw.flag(0.7) else None for a in self.arrays]
        if all(a is None for a in axes):
            axes[0] = 0
        size = draw.one_of((1, 2, 2, 3))
        out = 0 if draw.flag(0.8) else -1
        make = draw.settings.array
        self.arrays = [
            a if axis is None else np.stack([a, *(make(draw.rng, a.shape, a.dtype) for _ in range(size - 1))], axis)
            for a, axis in zip(self.arrays, axes, strict=True)
        ]
        self.define(f"NAME = lib.vmap({self.name}, {tuple(axes)}, {out})")

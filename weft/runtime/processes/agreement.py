"""Agreement: processes compare a program before they first run it together."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from weft.base.errors import ProgramMismatchError
from weft.base.settings import config, states
from weft.base.source import user_line
from weft.ir.jaxpr import Jaxpr
from weft.ir.printer import to_text
from weft.runtime.processes import world
from weft.runtime.processes.page import Details, first_difference
from weft.sharding.mesh import Mesh

FIX = "let all processes call the same functions in the same order, with arguments of the same types"
# Addresses in the default repr of Python objects.
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class Agreement:
    """Text that must be the same in all processes that run a local jaxpr on a mesh together."""

    def __init__(
        self, jaxpr: Jaxpr, mesh: Mesh, in_shardings: Sequence[Any], out_shardings: Sequence[Any], donated: Any
    ) -> None:
        self.ranks = tuple(sorted({d.process_index for d in mesh.device_tuple}))
        self.name = jaxpr.name or "a program"
        self._lines = [
            f"transport {world.current().transport.name}",
            *(f"setting {name} is {value!r}" for name, value in config.values.items() if states[name].in_key),
            f"mesh {mesh!s} of devices {[d.id for d in mesh.device_tuple]}",
            *_type_lines("argument", jaxpr.invars, in_shardings),
            *_type_lines("result", jaxpr.outvars, out_shardings),
            f"donated {donated}",
            *(f"constant {i} is {_constant(c)}" for i, c in enumerate(jaxpr.consts)),
        ]
        # One line for each equation; lines of the user are shown, but not compared.
        shown = [*self._lines, *ADDRESS.sub("", to_text(jaxpr, source=True, width=0)).splitlines()]
        self._lines += ADDRESS.sub("", to_text(jaxpr, width=0)).splitlines()
        self._shown = shown if len(shown) == len(self._lines) else self._lines
        self._digest = world.digest_text("\n".join(self._lines))
        self._agreed = False

    def add(self, lines: Sequence[str]) -> None:
        """Add lines to compare, which are known when the program has been compiled."""
        self._lines, self._shown = [*self._lines, *lines], [*self._shown, *lines]
        self._digest = world.digest_text("\n".join(self._lines))

    @contextlib.contextmanager
    def section(self) -> Iterator[str]:
        """Enter the section in which processes run the program, and yield the digest of all their sections.

        The first time they compare the program before.
        """
        here = world.current()
        with here.lock:
            here.raise_failure()
            line = user_line()
            chain = here.record(self.ranks, self.name, self._digest, line, Details(self._lines, self._shown))
            if not self._agreed:
                compare(self.name, self._lines, self.ranks, self._shown)
                self._agreed = True
            elif config.distributed_checks == "all":
                compare(self.name, [f"call {self.name} at {line}", f"after calls {chain}"], self.ranks)
            here.page.sections += 1
            try:
                yield chain
            finally:
                here.page.sections -= 1


def _type_lines(what: str, values: Sequence[Any], shardings: Sequence[Any]) -> list[str]:
    return [
        f"{what} {i} is {v.aval.short()} on each device, split as {s.spec!r}"
        for i, (v, s) in enumerate(zip(values, shardings, strict=True))
    ]


def _constant(value: Any) -> str:
    array = np.ascontiguousarray(np.asarray(getattr(value, "_value", value)))
    return f"{array.dtype}{array.shape} {world.digest_text(array.tobytes().hex())}"


def compare(name: str, lines: Sequence[str], ranks: Sequence[int], shown: Sequence[str] | None = None) -> None:
    """Raise on all processes unless all pass the same lines, naming the first difference.

    `shown` has the text to show for each line.
    """
    here = world.current()
    here.page.comparing = True
    try:
        _compare(here, name, lines, ranks, lines if shown is None else shown)
    finally:
        here.page.comparing = False


def _compare(here: world.World, name: str, lines: Sequence[str], ranks: Sequence[int], shown: Sequence[str]) -> None:
    doing = f"the comparison of {name}"
    digest = world.digest_text("\n".join(lines)).encode()
    if len(set(here.all_gather(digest, ranks, doing))) == 1:
        return
    own = [lines, shown, here.page.where]
    texts = dict(zip(ranks, map(json.loads, here.all_gather(json.dumps(own).encode(), ranks, doing)), strict=True))
    alike: dict[tuple[str, ...], list[int]] = {}
    for rank, (compared, _, _) in texts.items():
        alike.setdefault(tuple(compared), []).append(rank)
    groups = [
        f"process {r[0]} ({texts[r[0]][2]})" if len(r) == 1 else f"processes {', '.join(map(str, r))}"
        for r in alike.values()
    ]
    first, second = [r[0] for r in alike.values()][:2]
    raise ProgramMismatchError(
        f"Processes do not agree on what to run: {' and '.join(groups)} differ in {name}.",
        received=first_difference(texts[first], first, texts[second], second),
        fix=FIX,
    )

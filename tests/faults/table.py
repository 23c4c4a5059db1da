"""Table of faults: small mutations of the compiler, each a few lines of a file and their replacement."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass

TABLE = pathlib.Path(__file__).with_name("faults.txt")
# The kinds of failure. All but the last are silent: the program runs, with wrong results or a wrong state.
SILENT = ("numbers", "bits", "memory", "state", "effects")
KINDS = (*SILENT, "crash")


class DoesNotApply(Exception):
    """Raised if the lines that a fault changes are not in their file."""


@dataclass(frozen=True)
class Fault:
    """Mutation: `old` occurs once in `file` (a path in the repository) and is replaced by `new`."""

    name: str
    kind: str
    file: str
    breaks: str
    old: str
    new: str

    @property
    def area(self) -> str:
        """Part of the package that it is in: `compiler/emit`, `primitives`, ..."""
        folders = self.file.split("/")[1:-1]
        return "/".join(folders[: 2 if folders[0] == "compiler" else 1])

    def applied(self, text: str) -> str:
        """Return the text of its file with the mutation."""
        count = f"\n{text}".count(f"\n{self.old}")
        if count != 1:
            raise DoesNotApply(f"{self.name}: its lines stand {count} times in {self.file}, not once:\n{self.old}")
        return f"\n{text}".replace(f"\n{self.old}", f"\n{self.new}")[1:]


def faults() -> list[Fault]:
    """Return all faults of the table, in its order."""
    lines = [line for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    return [_fault(block.splitlines()) for block in "\n".join(lines).split("\n\n") if block.strip()]


def _fault(lines: list[str]) -> Fault:
    head, breaks, *changes = [line for line in lines if line]
    name, kind, file = (part.strip() for part in head.split("|"))
    sides: dict[str, list[str]] = {"- ": [], "+ ": []}
    for line in changes:
        if line[:2] not in sides:
            raise ValueError(f"A line of the fault {name} begins with neither - nor +: {line}")
        sides[line[:2]].append(line[2:])
    old, new = ("".join(f"{line}\n" for line in side) for side in sides.values())
    return Fault(name, kind, file, breaks, old, new)

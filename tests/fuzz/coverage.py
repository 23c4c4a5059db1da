"""Coverage of random programs: primitives, pairs of neighbours, and (primitive, dtype, transformation)."""

from __future__ import annotations

import json
import pathlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.fuzz.checks import case_of
from tests.fuzz.feasible import TAPES, countable, name_of, possible_pairs, possible_triples, registered
from tests.fuzz.generator import NO_RULE, STAGES, DrawError, generate
from tests.fuzz.table import NEVER
from weft.compiler.passes.inline import inline
from weft.ir.jaxpr import Jaxpr, Var, subjaxprs

ALL_STAGES = ("plain", *dict.fromkeys(STAGES))


@dataclass
class Coverage:
    """Counts of programs in which each primitive, pair and triple occurs."""

    programs: int = 0
    primitives: Counter[str] = field(default_factory=Counter)
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    triples: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def add(self, jaxpr: Jaxpr, stages: Iterable[str]) -> None:
        """Count a traced program, after calls are opened."""
        self.programs += 1
        self._equations(inline(jaxpr), set(stages))

    def _equations(self, jaxpr: Jaxpr, stages: set[str]) -> None:
        result: dict[Any, str] = {}
        for equation in jaxpr.eqns:
            name = equation.primitive.name
            self.primitives[name] += 1
            for atom in equation.invars:
                if isinstance(atom, Var) and atom in result:
                    self.pairs[result[atom], name] += 1
            for v in equation.outvars:
                result[v] = name
            for v in equation.outvars[:1]:
                for stage in stages:
                    self.triples[name, name_of(v.aval), stage] += 1
            for inner in subjaxprs(equation.params):
                self._equations(inner, stages)

    def merge(self, other: Coverage) -> None:
        self.programs += other.programs
        self.primitives += other.primitives
        self.pairs += other.pairs
        self.triples += other.triples

    def report(self) -> str:
        """Report the covered share of everything that can occur."""
        names = [p.name for p in countable()]
        pairs, triples = possible_pairs(), possible_triples(ALL_STAGES)
        have_pairs, have_triples = pairs & self.pairs.keys(), triples & self.triples.keys()
        missing = [n for n in (*names, *sorted(TAPES)) if not self.primitives[n]]
        lines = [
            f"{self.programs} programs",
            f"primitives: {len(names) + len(TAPES) - len(missing)} of {len(names) + len(TAPES)} that can occur "
            f"({len(registered())} registered, {len(NEVER)} never occur, the rest are calls that are opened)",
            f"pairs of neighbours: {len(have_pairs)} of {len(pairs)}, {len(have_pairs) / len(pairs):.1%}",
            f"(primitive, dtype, transformation): {len(have_triples)} of {len(triples)}, "
            f"{len(have_triples) / len(triples):.1%}",
            f"pairs that types should not allow: {len(self.unexpected())}",
        ]
        if missing:
            lines.append(f"not met: {', '.join(missing)}")
        rare = Counter(a for a, _ in pairs - have_pairs)
        rare.update(b for _, b in pairs - have_pairs)
        lines.append("most often missing in pairs: " + ", ".join(f"{n} {c}" for n, c in rare.most_common(12)))
        return "\n".join(lines)

    def unexpected(self) -> list[tuple[str, str]]:
        """Pairs that were met though `feasible` rules them out: then its definition is wrong."""
        names = {p.name for p in countable()}
        return sorted(p for p in self.pairs if p[0] in names and p[1] in names and p not in possible_pairs())

    def write(self, path: pathlib.Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {
            "programs": self.programs,
            "primitives": dict(self.primitives.most_common()),
            "pairs": {" -> ".join(p): n for p, n in self.pairs.most_common()},
            "triples": {" ".join(t): n for t, n in self.triples.most_common()},
            "missing pairs": sorted(" -> ".join(p) for p in possible_pairs() - self.pairs.keys()),
            "never": NEVER,
        }
        path.write_text(json.dumps(content, indent=1))


def coverage_of(seeds: Iterable[int]) -> Coverage:
    """Draw and trace programs, without compiling them."""
    found = Coverage()
    for seed in seeds:
        try:
            program = generate(seed)
            found.add(case_of(program).jaxpr, program.stages)
        except (*NO_RULE, DrawError):
            continue
    return found

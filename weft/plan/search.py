"""Search for shardings: coordinate descent over those of the arguments, by the cost of plans.

A candidate says for each argument which of its dimensions each axis of the mesh splits. It is partitioned whole, and
its cost is the time of one run on the machine, after the memory that a device lacks. The descent starts from the
patterns that people use (data parallel, FSDP, tensor parallel in columns or rows, and their products over the axes), so
what it returns is never worse than those. Arguments that differ in an index only, as those of layers do, are decided
together first, then each on its own.
"""

from __future__ import annotations

import itertools
import re
import time as clock
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from weft.api.contract import parse_bytes
from weft.base import tree
from weft.base.memo import cached_property
from weft.base.text import bytes_text
from weft.compiler.partition.partition import PartitionedJaxpr
from weft.compiler.partition.propagate import Propagation
from weft.ir.jaxpr import Jaxpr, Var
from weft.ir.types import ArrayType
from weft.plan import Plan, Staged, communication_seconds, estimate, local_bytes
from weft.plan.machine import Machine, get_machine
from weft.runtime.spmd import find_state
from weft.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

# For each argument: the dimension that each axis of the mesh splits, or None.
Choice = tuple[int | None, ...]
Candidate = tuple[Choice, ...]
Cost = tuple[float, float]

MOST_STARTS, MOST_SHOWN, MOST_CORRECTIONS = 4, 6, 2
# Least relative gain of a change: fewer splits are preferred to equally good ones.
GAIN = 1e-4


@dataclass(frozen=True)
class Found:
    """Result of a search: `specs` in the tree of the arguments, the plan for them, the number of candidates and the
    seconds they took, the bytes of memory that a device may use, and the costs of the result and of each initial
    pattern: bytes of memory that a device lacks, and seconds of a run, both estimated before fusion."""

    specs: Any
    plan: Plan
    tried: int
    seconds: float
    cost: Cost
    starts: dict[str, Cost]
    memory: float

    @property
    def fits(self) -> bool:
        """True if the memory of a device suffices for the plan."""
        return self.plan.peak_memory <= self.memory

    @property
    def in_shardings(self) -> Any:
        """For `jit`: shardings in the tree of the arguments."""
        mesh = self.plan.mesh
        return tree.map(lambda s: NamedSharding(mesh, s), self.specs, is_leaf=lambda s: isinstance(s, PartitionSpec))

    def constraints(self) -> dict[str, PartitionSpec]:
        """Return the specs by names of arguments; `[*]` stands for all indices with the same spec."""
        leaves = tree.leaves(self.specs, is_leaf=lambda s: isinstance(s, PartitionSpec))
        groups: dict[str, dict[str, PartitionSpec]] = {}
        for name, spec in zip(self.plan.names, leaves, strict=True):
            groups.setdefault(without_indices(name), {})[name] = spec
        found: dict[str, PartitionSpec] = {}
        for pattern, members in groups.items():
            same = len(set(members.values())) == 1 and len(members) > 1
            found.update({pattern: next(iter(members.values()))} if same else members)
        return found

    def __repr__(self) -> str:
        short = "" if self.fits else f", which needs more than {bytes_text(self.memory)} a device"
        lines = [f"# {self.tried} plans in {self.seconds:.1f} s; found: {cost_text(self.cost)}{short}"]
        best = sorted(self.starts.items(), key=lambda pair: pair[1])[:MOST_SHOWN]
        lines += [f"# {name}: {cost_text(cost)}" for name, cost in best]
        lines += [f"#   {name}: {spec}" for name, spec in self.constraints().items()]
        lines.append(f"in_shardings = {self.specs!r}")
        return "\n".join(lines)


def search(
    fun: Callable[..., Any],
    /,
    *shapes: Any,
    mesh: Mesh | AbstractMesh,
    memory: Any = None,
    time: float = 10.0,
    machine: Any = "h100",
    donate_argnums: int | Sequence[int] | None = None,
) -> Found:
    """Search the shardings of arguments of these shapes with which `fun` is fastest on a mesh, by the cost of
    `weft.plan`.

    `memory` is what a device has, in bytes or as a text (`"16GB"`), by default that of the machine; `time` is how many
    seconds to search. The result prints as constraints to paste; its `in_shardings` are for `jit`. Arguments that are
    donated, or that the function returns as new ones of the same types, are state: they are stored split, and their
    shardings are also those of the new state.
    """
    started = clock.perf_counter()
    described = get_machine(machine)
    limit = described.memory if memory is None else parse_bytes("memory", memory)
    staged = Staged(fun, shapes, mesh, donate_argnums)
    space = Space(staged, described, limit, started + time)
    result, best, starts = space.fitting_plan()
    specs = [make_spec(d) for d in space.dims(best)[staged.constants :]]
    in_tree = tree.structure(tuple(shapes))
    found = tree.unflatten(in_tree, specs)
    return Found(found, result, space.tried, clock.perf_counter() - started, space.cost(best), starts, limit)


class Space:
    """Search space: the candidates for a staged function, with their costs."""

    def __init__(self, staged: Staged, machine: Machine, limit: float, end: float) -> None:
        self.staged, self.machine, self.limit, self.end = staged, machine, limit, end
        # Peak memory of plans by that of live values before fusion, as far as one has been planned.
        self.fused = 1.0
        self.types = staged.in_types
        # The largest axis first: its choices matter most.
        self.axes = sorted(staged.sizes, key=lambda a: -staged.sizes[a])
        state = set(find_state(staged.whole).values())
        self.is_state = [i in state or bool(staged.donated and staged.donated[i]) for i in range(len(self.types))]
        self.known: dict[Candidate, Cost] = {}

    @property
    def tried(self) -> int:
        return len(self.known)

    def out_of_time(self) -> bool:
        return clock.perf_counter() > self.end

    # -- candidates ------------------------------------------------------------------------------------------------

    def dims(self, candidate: Candidate) -> list[Any]:
        """Return the axes of each dimension of each argument."""
        found = []
        for aval, choice in zip(self.types, candidate, strict=True):
            own = tuple(
                tuple(a for a, d in zip(self.axes, choice, strict=True) if d == dim) for dim in range(rank(aval))
            )
            found.append(own)
        return found

    def is_even(self, i: int, choice: Choice) -> bool:
        """Return whether the axes split the dimensions of an argument evenly."""
        parts: dict[int, int] = {}
        for axis, dim in zip(self.axes, choice, strict=True):
            if dim is not None:
                parts[dim] = parts.get(dim, 1) * self.staged.sizes[axis]
        shape = getattr(self.types[i], "shape", ())
        return all(shape[d] % n == 0 and shape[d] >= n for d, n in parts.items())

    def options(self, i: int, choice: Choice) -> Iterator[Choice]:
        """Yield the choices for an argument in which one axis splits another dimension, or none."""
        if i < self.staged.constants:
            return
        for k, now in enumerate(choice):
            for dim in (None, *range(rank(self.types[i]))):
                other = (*choice[:k], dim, *choice[k + 1 :])
                if dim != now and self.is_even(i, other):
                    yield other

    def starts(self) -> Iterator[tuple[str, Candidate]]:
        """Yield the initial patterns, which give each axis a role; tensor parallelism beside data only."""
        for roles in itertools.product((*ROLES, TENSOR), repeat=len(self.axes)):
            if TENSOR in roles and not set(roles) <= {TENSOR, "data parallel", "FSDP"}:
                continue
            if roles.count(TENSOR) > 1:
                continue
            candidate = []
            for i in range(len(self.types)):
                choice: Choice = (None,) * len(self.axes)
                for k, role in sorted(enumerate(roles), key=lambda pair: pair[1] != TENSOR):
                    if role == TENSOR:
                        choice = self.split_once(k, self.tensor_parallel[k].get(i))
                    for dim in sorted(self.split_candidates(i, role), key=lambda d: d in choice):
                        other = (*choice[:k], dim, *choice[k + 1 :])
                        if self.is_even(i, other):
                            choice = other
                            break
                candidate.append(choice)
            name = ", ".join(f"{role} over {axis}" for role, axis in zip(roles, self.axes, strict=True))
            yield name, tuple(candidate)

    def split_candidates(self, i: int, role: str) -> list[int]:
        """Return the dimensions of an argument that a role may split, the best first."""
        if i < self.staged.constants or role in ("copies", TENSOR):
            return []
        count = rank(self.types[i])
        if not self.is_state[i]:
            return [0] if count and role in ("data parallel", "FSDP") else []
        if role == "data parallel" or not count:
            return []
        shape = self.types[i].shape
        if role == "FSDP":
            return sorted(range(count), key=lambda d: (-shape[d], d))
        return [count - 1] if role == "columns" else [0]

    # -- cost ------------------------------------------------------------------------------------------------------

    def cost(self, candidate: Candidate) -> Cost:
        """Return the bytes of memory that a device lacks, and the seconds of a run."""
        found = self.known.get(candidate)
        if found is None:
            split = self.partition(candidate, quick=True)
            seconds = estimate(split.jaxpr, self.machine)[0] + communication_seconds(split.communication, self.machine)
            found = self.known[candidate] = (live_bytes(split.jaxpr, self.staged.donated), seconds)
        return max(0.0, found[0] * self.fused - self.limit), found[1]

    def partition(self, candidate: Candidate, quick: bool = False) -> PartitionedJaxpr:
        """Partition the function as a candidate says."""
        return self.staged.partition_for(self.dims(candidate), [None] * len(self.staged.jaxpr.outvars), quick)

    def plan(self, candidate: Candidate) -> Plan:
        """Plan a candidate, and correct the estimates of memory by what it needs after fusion."""
        result = self.staged.plan(self.partition(candidate), self.machine, clock.perf_counter())
        self.cost(candidate)
        self.fused = result.peak_memory / max(self.known[candidate][0], 1.0)
        return result

    # -- descent ---------------------------------------------------------------------------------------------------

    def fitting_plan(self) -> tuple[Plan, Candidate, dict[str, Cost]]:
        """Search, and plan what is found; if the estimate of memory was wrong about whether it fits, search again with
        the estimates that follow from the plan. Also return the costs of the patterns."""
        best, starts = self.run()
        for _ in range(MOST_CORRECTIONS):
            estimated = not self.cost(best)[0]
            result = self.plan(best)
            if estimated == (result.peak_memory <= self.limit):
                break
            best, starts = self.run(best)
        else:
            result = self.plan(best)
        return result, best, starts

    def run(self, known: Candidate | None = None) -> tuple[Candidate, dict[str, Cost]]:
        """Search the best candidate, a known one included; also return the costs of the patterns. The time limit only
        applies once a candidate fits into memory, unless no pattern does."""
        costs: dict[str, tuple[Cost, Candidate]] = {}
        fits = False
        for name, candidate in self.starts():
            costs[name] = (self.cost(candidate), candidate)
            fits = fits or not costs[name][0][0]
            if fits and self.out_of_time():
                break
        ordered: list[Candidate] = []
        if known is not None:
            costs["found before"] = (self.cost(known), known)
        for _, candidate in sorted(costs.values(), key=lambda pair: pair[0]):
            if candidate not in ordered:
                ordered.append(candidate)
        best = ordered[0]
        for level in range(3):
            groups = self.groups(level)
            # Single arguments are only changed in the best candidate: there are many, and few changes help.
            for start in [best, *(ordered[:MOST_STARTS] if level < 2 else [])]:
                linked = self.descend_by_links(start) if level == 0 else start
                best = min(best, self.descend(linked, groups), key=self.cost)
        return best, {name: cost for name, (cost, _) in costs.items()}

    @cached_property
    def links(self) -> list[tuple[int, dict[int, int]]]:
        """Arguments whose dimensions an axis splits together so that operations need no gathers, as the weights of a
        layer in tensor parallelism: the index of the axis, and the dimension of each argument. Each follows by
        propagation from one dimension of the arguments of one name."""
        found: dict[Any, tuple[int, dict[int, int]]] = {}
        for group in self.groups(1):
            if not self.is_state[group[0]]:
                continue
            for k, axis in enumerate(self.axes):
                for dim in range(rank(self.types[group[0]])):
                    dims = self.propagate(axis, dict.fromkeys(group, dim))
                    own = {i: d for i, d in dims.items() if self.is_even(i, self.split_once(k, d))}
                    if set(group) <= set(own):
                        found.setdefault((k, *sorted(own.items())), (k, own))
        return [*found.values()]

    @cached_property
    def tensor_parallel(self) -> list[dict[int, int]]:
        """Dimension of each argument that each axis splits in tensor parallelism: the smallest sets of `links`, which
        split what only one layer computes with, that do not overlap."""
        found: list[dict[int, int]] = [{} for _ in self.axes]
        for k, own in sorted(self.links, key=lambda link: len(link[1])):
            if not set(own) & set(found[k]):
                found[k].update(own)
        return found

    def split_once(self, k: int, dim: int | None) -> Choice:
        """Return the choice in which only axis `k` splits a dimension."""
        return tuple(dim if j == k else None for j in range(len(self.axes)))

    def propagate(self, axis: Any, seeds: dict[int, int]) -> dict[int, int]:
        """Return the dimensions of state that an axis splits if it splits those of `seeds`, and no data."""
        shardings = Propagation(self.staged.jaxpr, {axis: self.staged.sizes[axis]})
        for i, v in enumerate(self.staged.jaxpr.invars):
            if i in seeds or not self.is_state[i]:
                own = [(axis,) if d == seeds.get(i) else () for d in range(rank(v.aval))]
                shardings.fix(v, tuple(own))
        shardings.run()
        found = [(i, shardings[v]) for i, v in enumerate(self.staged.jaxpr.invars)]
        return {i: dims.index((axis,)) for i, dims in found if (axis,) in dims}

    def descend_by_links(self, candidate: Candidate) -> Candidate:
        """Improve a candidate by changes of all arguments that an axis splits together; data that it splits is left as
        it is, or not split over it."""
        best = candidate
        for k, own in self.links:
            for splits_data in (True, False):
                if self.out_of_time():
                    return best
                other = []
                for i, choice in enumerate(best):
                    keeps = splits_data or self.is_state[i]
                    dim = own.get(i, choice[k] if keeps else None)
                    changed = (*choice[:k], dim, *choice[k + 1 :])
                    other.append(changed if self.is_even(i, changed) else choice)
                best = min(best, tuple(other), key=self.cost)
        return best

    def groups(self, level: int) -> list[list[int]]:
        """Group the arguments that are decided together, those with the most bytes first. At level 0 a group has an
        argument of all layers and what an optimizer stores for it; at level 1 an argument of all layers; at level 2 a
        single argument."""
        found: dict[Any, list[int]] = {}
        for i, aval in enumerate(self.types):
            name = without_indices(self.staged.names[i] if i < len(self.staged.names) else str(i))
            if level == 0 and self.is_state[i]:
                name = name[name.find("[") :] if "[" in name else ""
            found.setdefault((name, aval) if level < 2 else i, []).append(i)
        return sorted(found.values(), key=lambda group: -sum(local_bytes(self.types[i]) for i in group))

    def descend(self, candidate: Candidate, groups: list[list[int]]) -> Candidate:
        """Improve a candidate by changes of one group at a time, until none helps or the time is over."""
        cost, changed = self.cost(candidate), True
        while changed:
            changed = False
            for group in groups:
                for option in self.options(group[0], candidate[group[0]]):
                    if self.out_of_time():
                        return candidate
                    other = tuple(option if i in group else choice for i, choice in enumerate(candidate))
                    new = self.cost(other)
                    if new[0] < cost[0] or (new[0] == cost[0] and new[1] < cost[1] * (1 - GAIN)):
                        candidate, cost, changed = other, new, True
        return candidate


ROLES = ("copies", "data parallel", "FSDP", "columns", "rows")
TENSOR = "tensor parallel"


def rank(aval: Any) -> int:
    return len(aval.shape) if isinstance(aval, ArrayType) else 0


def live_bytes(jaxpr: Jaxpr, donated: Sequence[bool]) -> float:
    """Return the peak of live bytes; `donated` arguments die with their last use."""
    last: dict[Any, int] = {}
    for i, equation in enumerate(jaxpr.eqns):
        last.update(dict.fromkeys((a for a in equation.invars if type(a) is Var), i))
        last.update({v: i for v in equation.outvars if v not in last})
    last.update(dict.fromkeys((a for a in jaxpr.outvars if type(a) is Var), len(jaxpr.eqns)))
    ending: dict[int, list[Any]] = {}
    for v, i in last.items():
        ending.setdefault(i, []).append(v)
    held = {v for v, flag in itertools.zip_longest(jaxpr.invars, donated, fillvalue=False) if not flag}
    live = float(sum(local_bytes(v.aval) for v in jaxpr.invars))
    peak = live
    for i, equation in enumerate(jaxpr.eqns):
        live += sum(local_bytes(v.aval) for v in equation.outvars)
        peak = max(peak, live)
        live -= sum(local_bytes(v.aval) for v in ending.get(i, ()) if v not in held)
    return peak


def cost_text(cost: Cost) -> str:
    lacking, seconds = cost
    return f"{seconds * 1e3:.3g} ms" + (f", {bytes_text(lacking)} of memory are missing" if lacking else "")


def without_indices(name: str) -> str:
    """Replace indices in a name, so that all layers share it: `params['layers'][3]['up']` becomes
    `params['layers'][*]['up']`."""
    return re.sub(r"\[\d+\]", "[*]", name)


def make_spec(dims: Sequence[tuple[Any, ...]]) -> PartitionSpec:
    """Make a spec, without trailing entries for dimensions that are not split."""
    entries: list[Any] = [axes[0] if len(axes) == 1 else axes or None for axes in dims]
    while entries and entries[-1] is None:
        entries.pop()
    return PartitionSpec(*entries)

"""The SPMD partitioner: makes the local jaxpr, which computes every equation on the shards of one device, with the
collectives that this takes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from weft.base.compile_options import DEFAULT, CompileOptions
from weft.base.dataclass import dataclass
from weft.base.memo import cached_property
from weft.compiler.partition.bodies import FLOPS, MEMORY, BodyPartitioner, CommunicationLog, iterations, local_type
from weft.compiler.partition.propagate import Propagation
from weft.compiler.partition.reasons import CollectiveRecord, Reasons
from weft.compiler.partition.rules import Dims, get_rank, whole
from weft.compiler.partition.uneven import clear_ends, drop_uneven, splittable
from weft.compiler.partition.verify import check_axes, manual_axes, verify_local
from weft.ir.jaxpr import Equation, Jaxpr, Var, subjaxprs
from weft.ir.kinds import Resharding
from weft.ir.parts import byte_count
from weft.ir.types import ArrayType
from weft.primitives.control.shard_map import shard_map
from weft.primitives.elementwise.elementwise import Elementwise
from weft.primitives.families import Indexing
from weft.primitives.movement.terms import unsum
from weft.sharding.routes import LATENCY, LINK
from weft.sharding.spec import UNCONSTRAINED, rename_axes, spec_dims
from weft.trace.closed import stage_subjaxpr

# Attempts with shardings that the attempt before found, and names of arguments that are tried as the data.
MOST_ROUNDS, MOST_ROLES = 2, 4
# Seconds of a collective without its bytes, where attempts are compared: less than for one that is waited for, since
# adjacent ones are combined, and those between processes overlap with computation.
MESSAGE = 0.4 * LATENCY


@dataclass
class PartitionedJaxpr:
    """The jaxpr that each device runs, how its arguments and results are split, and its collectives. `inspected` has
    the callbacks of `inspect_array_sharding` with the shardings that they receive."""

    jaxpr: Jaxpr
    in_dims: list[Dims]
    out_dims: list[Dims]
    communication: list[CollectiveRecord]
    inspected: list[tuple[Callable[[Any], None], Dims]]


def partition(
    jaxpr: Jaxpr,
    sizes: Mapping[Any, int],
    in_dims: Sequence[Dims | None],
    out_dims: Sequence[Dims | None],
    stored: Sequence[bool] = (),
    names: Sequence[str] = (),
    evenly: bool = False,
    options: CompileOptions = DEFAULT,
    quick: bool = False,
) -> PartitionedJaxpr:
    """Partition a jaxpr without calls over a mesh.

    Several attempts are compared where the best way is not clear from single operations, and the cheapest program is
    returned:

    - Without stored arguments, arguments of several names may contend for an axis: those of each name are tried as the
      data that decides, the others as stored ones.
    - Where it depends on later operations how one is best split, both estimates are tried (`cheapest`).
    - Where bodies of loops reshard their results, the shardings in which they compute these are propagated.

    Args:
        jaxpr: the program on whole values.
        sizes: sizes of the mesh axes.
        in_dims: shardings of its arguments; None: as propagation chooses.
        out_dims: shardings of its results; None: as propagation chooses.
        stored: which arguments are split only to save memory, so that their shardings propagate last.
        names: names of the arguments, for explanations.
        evenly: whether shardings that propagation chooses for arguments and results must be even.
        options: the options of the compiler; shards have no padding if all elements are checked.
        quick: whether to return the program of the first attempt.
    """

    def attempt(stored: Sequence[bool], stays: bool = False, found: Mapping[Var, Dims] | None = None) -> Attempt:
        shardings = propagate(jaxpr, sizes, in_dims, out_dims, stored, options, found)
        return Attempt(shardings, out_dims, names, evenly, options, stays)

    best = attempt(stored)
    if quick:
        return best.result
    for other in data_roles(in_dims, stored, names):
        best = min(best, attempt(other), key=Attempt.seconds)
    flags = best.shardings.storage_flags()
    starts = [best, *([attempt(flags, stays=True)] if best.log.doubts else ())]
    for start in starts:
        last = start
        for _ in range(MOST_ROUNDS if start.log.resharded_results else 0):
            before, last = last, attempt(flags, start.log.stays, last.log.found)
            best = min(best, last, key=Attempt.seconds)
            if last.seconds() >= before.seconds():
                break
    result: PartitionedJaxpr = min(best, *starts, key=Attempt.seconds).result
    return result


def propagate(
    jaxpr: Jaxpr,
    sizes: Mapping[Any, int],
    in_dims: Sequence[Dims | None],
    out_dims: Sequence[Dims | None],
    stored: Sequence[bool],
    options: CompileOptions,
    found: Mapping[Var, Dims] | None,
) -> Propagation:
    """Propagate shardings from arguments, results and constraints; `found` has those of an earlier attempt, which hold
    for all other values."""
    shardings = Propagation(jaxpr, sizes, pads=not options.tests_values)
    for i, (v, dims) in enumerate(zip(jaxpr.invars, in_dims, strict=True)):
        if dims is not None:
            shardings.fix(v, dims, stored=i < len(stored) and stored[i])
    for v in jaxpr.constvars:
        shardings.fix(v, whole(v.aval))
    for result, dims in zip(jaxpr.outvars, out_dims, strict=True):
        if dims is not None and type(result) is Var and result not in shardings.dims:
            shardings.fix(result, dims, stored=bool(stored), said="result")
    fix_constraints(shardings, jaxpr)
    shardings.run()
    if found is not None:
        shardings.adopt(found)
    if options.verifies:
        for v, own in shardings.dims.items():
            check_axes(v, own, (), sizes)
    return shardings


def data_roles(
    in_dims: Sequence[Dims | None], stored: Sequence[bool], names: Sequence[str]
) -> Iterator[Sequence[bool]]:
    """Yield which arguments to take for stored ones, so that those of one name decide; nothing if some are known to be
    stored, or if arguments of one name only are split."""
    if any(stored):
        return
    groups: dict[str, set[int]] = {}
    for i, (name, dims) in enumerate(zip(names, in_dims, strict=False)):
        if dims is not None and any(dims):
            groups.setdefault(re.split(r"\W", name, maxsplit=1)[0], set()).add(i)
    if 1 < len(groups) <= MOST_ROLES:
        for members in groups.values():
            yield [i not in members for i in range(len(in_dims))]


class Attempt:
    """Partition of a jaxpr by one propagation of shardings, and its estimated cost."""

    def __init__(
        self,
        shardings: Propagation,
        out_dims: Sequence[Dims | None],
        names: Sequence[str],
        evenly: bool,
        options: CompileOptions,
        stays: bool,
    ) -> None:
        self.shardings = shardings
        jaxpr, sizes = shardings.jaxpr, shardings.sizes
        ends = drop_uneven if evenly else lambda aval, dims, sizes: dims
        found = [ends(v.aval, shardings[v], sizes) for v in jaxpr.invars]
        self.log = log = CommunicationLog(Reasons(shardings, names), stays)
        split: list[Dims] = []

        def local(*args: Any) -> list[Any]:
            partitioner = BodyPartitioner(shardings, sizes, log, verifies=options.verifies)
            passed = zip(args, jaxpr.invars, found, strict=True)
            args = tuple(clear_ends(x, v.aval, dims, sizes, shardings.pads) for x, v, dims in passed)
            partitioner.define(zip(jaxpr.invars, args, strict=True), found)
            partitioner.define(
                zip(jaxpr.constvars, jaxpr.consts, strict=True), [whole(v.aval) for v in jaxpr.constvars]
            )
            partitioner.run(jaxpr)
            outs = []
            for v, dims in zip(jaxpr.outvars, out_dims, strict=True):
                split.append(ends(v.aval, partitioner.target(v), sizes) if dims is None else dims)
                outs.append(partitioner.value(v, split[-1], None, "as a result it is to be"))
            log.found.update(partitioner.at)
            return outs

        types = [local_type(v.aval, dims, sizes) for v, dims in zip(jaxpr.invars, found, strict=True)]
        staged = stage_subjaxpr(local, types, name=jaxpr.name)
        if options.verifies:
            verify_local(staged, found, split, jaxpr.out_avals, sizes, manual_axes(jaxpr), partial_sum_axes(jaxpr))
        self.result = PartitionedJaxpr(staged, found, split, log.communication, log.inspected)

    @cached_property
    def _seconds(self) -> float:
        # Neighbours exchange in both directions at once.
        latency = (row.times * (MESSAGE / 2 if row.kind == "ppermute" else MESSAGE) for row in self.log.communication)
        sent = sum(latency) + sum(row.times * row.bytes / LINK for row in self.log.communication)
        return sent + work_seconds(self.result.jaxpr)

    def seconds(self) -> float:
        """Estimate the seconds of one run: collectives, and the work of one device."""
        return self._seconds


def work_seconds(jaxpr: Jaxpr) -> float:
    """Estimate the seconds of the operations of a local jaxpr."""
    seconds = 0.0
    for equation in jaxpr.eqns:
        bodies = subjaxprs(equation.params) if equation.primitive.higher_order else ()
        if bodies:
            seconds += iterations(equation) * sum(work_seconds(body) for body in bodies)
            continue
        if not isinstance(equation.primitive, Indexing | Elementwise):  # those fuse with their readers
            types = [v.aval for v in (*equation.invars, *equation.outvars) if isinstance(v.aval, ArrayType)]
            seconds += sum(map(byte_count, types)) / MEMORY
        if equation.outvars and all(isinstance(v.aval, ArrayType) for v in equation.outvars):
            seconds += equation.primitive.flops(equation) / FLOPS
    return seconds


def partial_sum_axes(jaxpr: Jaxpr) -> list[frozenset[Any]]:
    """Return for each result the axes along which devices return partial sums."""
    found = {e.outvars[0]: frozenset(e.params["axes"]) for e in jaxpr.eqns if e.primitive is unsum}
    return [found.get(v, frozenset()) if type(v) is Var else frozenset() for v in jaxpr.outvars]


def fix_constraints(shardings: Propagation, jaxpr: Jaxpr) -> None:
    """Fix the shardings of `sharding_constraint`s, in bodies too, and start propagation from specs of `shard_map`."""
    for equation in jaxpr.memoize("constraining", lambda: list(filter(constrains, jaxpr.eqns))):
        primitive = equation.primitive
        spec = primitive.user_spec(equation.params) if isinstance(primitive, Resharding) else None
        if spec is not None:
            (v,) = equation.outvars
            named: Any = equation.params["sharding"]
            own = rename_axes(spec_dims(spec, get_rank(v.aval)), named.mesh.shape, shardings.sizes)
            if own is None:  # axes of another mesh that this mesh cannot express
                continue
            dims = splittable(v.aval, own, shardings.sizes, shardings.pads)
            if any(e is UNCONSTRAINED for e in spec.partitions):
                shardings.begin(v, dims, said="constraint")
            else:
                shardings.fix(v, dims, said="constraint")
        if primitive is shard_map:
            for values, specs in ((equation.invars, "in_specs"), (equation.outvars, "out_specs")):
                for a, own in zip(values, equation.params[specs], strict=True):
                    if type(a) is Var:
                        shardings.begin(a, spec_dims(own, get_rank(a.aval)))
        for body in subjaxprs(equation.params):
            fix_constraints(shardings, body)


def constrains(equation: Equation) -> bool:
    """Return whether an equation, or one in its bodies, may annotate shardings."""
    primitive, params = equation.primitive, equation.params
    return (isinstance(primitive, Resharding) and primitive.user_spec(params) is not None) or bool(subjaxprs(params))

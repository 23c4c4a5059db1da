"""Calls of programs on many devices: the shardings of arguments and results, and the program of one device.

A call is partitioned if an argument is sharded over a mesh, or if the jaxpr names one. Computation follows data:
arguments keep their shardings where the program allows it and are resharded otherwise; results are sharded as
`out_shardings` say, or as propagation finds best.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.base import collector
from weft.base.compile_options import CompileOptions, get_compile_options
from weft.base.dataclass import dataclass
from weft.base.errors import ArgumentError
from weft.base.lazy import lazy
from weft.base.memo import Memo
from weft.base.settings import config
from weft.base.source import user_line
from weft.ir.at_sizes import general_jaxpr
from weft.ir.jaxpr import Jaxpr, subjaxprs
from weft.ir.kinds import Resharding
from weft.ir.types import ArrayType
from weft.runtime.array import ConcreteArray, from_numpy, put
from weft.runtime.device import Placement, get_placement
from weft.runtime.execute import CompileCost, array_bytes, record_compilation
from weft.runtime.execution_backend import execution_backend
from weft.runtime.held import HeldArray
from weft.runtime.memory_backend import memory_backend
from weft.runtime.processes.agreement import Agreement
from weft.runtime.reproducible import Shares, check_parts, part_sizes
from weft.runtime.sharded import ShardedArray, split, type_with_sharding
from weft.runtime.unreduced import as_called, as_reduced, as_terms, unreduced_axes, with_terms
from weft.sharding.device import first_local_device, is_addressable
from weft.sharding.mesh import Mesh
from weft.sharding.shardings import NamedSharding, Sharding, as_auto_sharding, type_sharding
from weft.sharding.spec import UNCONSTRAINED, PartitionSpec, spec_dims

if TYPE_CHECKING:
    from weft.compiler.partition import driver, partition as partitioner, verify as partition_verifier
    from weft.runtime import stored_partitions
else:
    driver = lazy("weft.compiler.partition.driver")
    partitioner = lazy("weft.compiler.partition.partition")
    partition_verifier = lazy("weft.compiler.partition.verify")
    stored_partitions = lazy("weft.runtime.stored_partitions")

Dims = tuple[tuple[Any, ...], ...]


def find_meshes(jaxpr: Jaxpr) -> tuple[Mesh, ...]:
    """Return the meshes with devices that a jaxpr names, in sub-jaxprs too."""
    jaxpr = general_jaxpr(jaxpr)

    def find() -> tuple[Mesh, ...]:
        found: dict[Mesh, None] = {}
        for equation in jaxpr.eqns:
            if equation.primitive.partitions:
                mesh = equation.params.get("mesh") or getattr(equation.params.get("sharding"), "mesh", None)
                if isinstance(mesh, Mesh):
                    found[mesh] = None
            for inner in subjaxprs(equation.params):
                found.update(dict.fromkeys(find_meshes(inner)))
        return tuple(found)

    return jaxpr.memoize("named meshes", find)


def find_mesh(
    jaxpr: Jaxpr, args: Sequence[Any], shardings: Sequence[Any] = (), names: Sequence[str] = ()
) -> Mesh | None:
    """Return the mesh that a call runs on, or None if it runs on one device.

    It is the mesh that the jaxpr names, or else the shardings, or else the arguments, which may be on another mesh of
    the same devices. A jaxpr that takes or returns a tape runs on one device: residuals of a loop belong to a device.
    `names` are those of the arguments in errors.
    """
    (arrays_only,) = jaxpr.memoize("arrays only", lambda: (all(map(is_array, (*jaxpr.invars, *jaxpr.outvars))),))
    if not arrays_only:
        return None
    named = dict.fromkeys(find_meshes(jaxpr))
    for s in shardings:
        if isinstance(s, NamedSharding) and isinstance(s.mesh, Mesh):
            named[s.mesh] = None
    found = dict(named)
    for a in args:
        if type(a) is ShardedArray and isinstance(a.sharding, NamedSharding) and isinstance(a.sharding.mesh, Mesh):
            found[a.sharding.mesh] = None
    meshes = list(found)
    if not meshes:
        return None
    for other in meshes[1:]:
        alike = other.device_tuple == meshes[0].device_tuple
        if not alike or (other in named and other.shape_tuple != meshes[0].shape_tuple):
            raise ArgumentError(
                "The arguments and constraints of a call must be on one mesh.",
                received=" and ".join(describe_mesh(m, args, names) for m in (meshes[0], other)),
                fix="weft.device_put(x, weft.NamedSharding(mesh, spec))   to bring all arguments to one mesh",
                at=user_line(),
            )
    # A jaxpr may name it with axes of other types: the body of `auto_axes` does.
    outside = (config.mesh, *(m for m in meshes if m not in named))
    return next((m for m in outside if isinstance(m, Mesh) and same_devices(m, meshes[0])), meshes[0])


def describe_mesh(mesh: Mesh, args: Sequence[Any], names: Sequence[str]) -> str:
    """Describe a mesh with its devices, and the first argument that is on it."""
    on_it = [i for i, a in enumerate(args) if type(a) is ShardedArray and getattr(a.sharding, "mesh", None) is mesh]
    ids = [d.id for d in mesh.device_tuple]
    text = f"{mesh} of devices {ids if len(ids) < 9 else f'{ids[0]} to {ids[-1]}'}"
    if not on_it:
        return f"{text} (a constraint)"
    return f"{text} ({f'argument {names[on_it[0]]}' if on_it[0] < len(names) else 'a value'})"


def is_array(v: Any) -> bool:
    return isinstance(v.aval, ArrayType)


def same_devices(mesh: Mesh, other: Mesh) -> bool:
    """Return whether two meshes are equal up to the types of their axes."""
    return mesh.device_tuple == other.device_tuple and mesh.shape_tuple == other.shape_tuple


def sharding_dims(sharding: Any, aval: Any, mesh: Mesh) -> Dims | None:
    """Return the mesh axes that a sharding splits each dimension over; None if it leaves them open."""
    if not isinstance(sharding, NamedSharding) or sharding.mesh.shape_tuple != mesh.shape_tuple:
        return None
    return spec_dims(sharding.spec, aval.ndim)


@dataclass(frozen=True)
class SpmdProgram:
    """Jaxpr that is partitioned and compiled for a mesh.

    It has the shardings and types of arguments and results, the executable for all devices, which arguments donate
    their memory, and the result of partitioning.
    """

    in_shardings: tuple[NamedSharding, ...]
    out_shardings: tuple[NamedSharding, ...]
    out_types: tuple[ArrayType, ...]
    executable: Any
    donated: tuple[bool, ...]
    placements: tuple[Placement, ...]
    in_types: tuple[Any, ...]
    partitioned: Callable[[], Any]  # the result of partitioning, which a program from disk computes on demand

    @property
    def communication(self) -> tuple[Any, ...]:
        """Collectives of the program."""
        return tuple(self.partitioned().communication)

    @property
    def jaxpr(self) -> Jaxpr:
        """Jaxpr of one device."""
        result: Jaxpr = self.partitioned().jaxpr
        return result


def partition_and_compile(
    jaxpr: Jaxpr,
    mesh: Mesh,
    in_dims: Sequence[Dims | None],
    out_dims: Sequence[Dims | None],
    donated: tuple[bool, ...],
    names: Sequence[str],
) -> SpmdProgram:
    """Return the program of a jaxpr for a mesh, compiled once for each combination of shardings."""
    options = get_compile_options()
    key = ("spmd", mesh, tuple(in_dims), tuple(out_dims), donated, options)
    return jaxpr.memoize(key, lambda: _partition_and_compile(jaxpr, mesh, in_dims, out_dims, donated, names, options))


@collector.without_collection
def _partition_and_compile(
    jaxpr: Jaxpr,
    mesh: Mesh,
    in_dims: Sequence[Dims | None],
    out_dims: Sequence[Dims | None],
    donated: tuple[bool, ...],
    names: Sequence[str],
    options: CompileOptions,
) -> SpmdProgram:
    sizes = part_sizes(mesh)
    stored, outs = find_stored_arguments(jaxpr, in_dims, out_dims, donated)
    args = [*names, *(f"argument {i}" for i in range(len(names), len(in_dims)))]
    shares = None if sizes == dict(mesh.shape) else Shares(mesh, sizes)

    @functools.cache
    def partitioned() -> Any:
        global_jaxpr = driver.prepare(jaxpr)
        if shares is not None:
            named_values = [*zip(args, jaxpr.in_avals, in_dims, strict=True)]
            named_values += [(f"result {i}", t, d) for i, (t, d) in enumerate(zip(jaxpr.out_avals, outs, strict=True))]
            check_parts(sizes, mesh, partition_verifier.manual_axes(global_jaxpr), named_values)
        return partitioner.partition(global_jaxpr, sizes, in_dims, outs, stored, names, shares is not None, options)

    devices = mesh.device_tuple
    backend, takes_donated = execution_backend(devices[0]), memory_backend(devices[0]).takes_donated
    target = backend.target(first_local_device(devices))
    key = None
    if shares is None:
        key = stored_partitions.partition_key(jaxpr, mesh, in_dims, out_dims, donated, target, options)
    if key is not None:
        program = _from_disk(jaxpr, mesh, key, options, partitioned)
        if program is not None:
            return _record(jaxpr, program, args)
    result = partitioned()
    local = [v.aval for v in result.jaxpr.invars]
    taken = tuple(
        flag and shares is None and isinstance(t, ArrayType) and takes_donated(array_bytes(t))
        for flag, t in zip(donated or (False,) * len(local), local, strict=True)
    )
    in_shardings = tuple(make_named_sharding(mesh, dims) for dims in result.in_dims)
    for inspector, dims in result.inspected:
        inspector(make_named_sharding(mesh, dims))
    out_shardings = tuple(make_named_sharding(mesh, dims) for dims in result.out_dims)
    agreement = None
    if mesh.is_multi_process:
        agreement = Agreement(result.jaxpr, mesh, in_shardings, out_shardings, taken)
    if shares is None:
        executable: Any = backend.compile_for_devices(result.jaxpr, taken, sizes, devices, options, agreement)
        steps = executable.executable.compilation.key
        if key is not None and steps is not None:
            types = tuple(local), tuple(result.jaxpr.out_avals)
            constants = tuple(executable.constants)
            stored_partitions.store(
                key,
                stored_partitions.StoredPartition(
                    tuple(result.in_dims), tuple(result.out_dims), *types, taken, constants, steps
                ),
            )
    else:
        cuts = [shares.cut(t, d, name) for t, d, name in zip(local, result.in_dims, args, strict=True)]
        outs_cut = [
            shares.cut(t, d, f"result {i}")
            for i, (t, d) in enumerate(zip(result.jaxpr.out_avals, result.out_dims, strict=True))
        ]
        parts = backend.compile_for_devices(result.jaxpr, taken, sizes, shares.devices, options, agreement)
        executable = backend.share_among_devices(parts, shares.owners, cuts, outs_cut)
    return _record(jaxpr, _program(jaxpr, mesh, in_shardings, out_shardings, executable, taken, partitioned), args)


def make_named_sharding(mesh: Mesh, dims: Dims) -> NamedSharding:
    """Return the sharding that splits each dimension over these mesh axes."""
    while dims and not dims[-1] and not mesh.are_all_axes_explicit:  # explicit types have an entry per dimension
        dims = dims[:-1]
    return NamedSharding(mesh, PartitionSpec(*dims))


def _program(
    jaxpr: Jaxpr,
    mesh: Mesh,
    in_shardings: tuple[NamedSharding, ...],
    out_shardings: tuple[NamedSharding, ...],
    executable: Any,
    taken: tuple[bool, ...],
    partitioned: Callable[[], Any],
) -> SpmdProgram:
    out_types: list[Any] = [v.aval for v in jaxpr.outvars]
    out_shardings = tuple(as_reduced(s, t) for s, t in zip(out_shardings, out_types, strict=True))
    return SpmdProgram(
        in_shardings,
        out_shardings,
        tuple(type_with_sharding(t.plain, s) for t, s in zip(out_types, out_shardings, strict=True)),
        executable,
        taken,
        tuple(get_placement(d, True) for d in mesh.device_tuple if is_addressable(d)),
        tuple(v.aval for v in jaxpr.invars),
        partitioned,
    )


def _from_disk(
    jaxpr: Jaxpr, mesh: Mesh, key: str, options: CompileOptions, partitioned: Callable[[], Any]
) -> SpmdProgram | None:
    """Load the program that another process has stored, or return None."""
    backend = execution_backend(mesh.device_tuple[0])
    read = stored_partitions.read(key, jaxpr.name, backend.target(mesh.device_tuple[0]), options, partitioned)
    if read is None:
        return None
    found, local, compilation = read
    sizes = dict(mesh.shape)
    executable = backend.compile_for_devices(local, found.taken, sizes, mesh.device_tuple, options, None, compilation)
    in_shardings = tuple(make_named_sharding(mesh, dims) for dims in found.in_dims)
    out_shardings = tuple(make_named_sharding(mesh, dims) for dims in found.out_dims)
    return _program(jaxpr, mesh, in_shardings, out_shardings, executable, found.taken, partitioned)


def _record(jaxpr: Jaxpr, program: SpmdProgram, args: Sequence[str]) -> SpmdProgram:
    """Record the costs of a program's compilation, and return it."""
    split_as = ", ".join(f"{name} {s.spec!r}" for name, s in zip(args, program.in_shardings, strict=True))
    compiled = program.executable.executable
    record_compilation(
        jaxpr, CompileCost(compiled.compilation.seconds, compiled.compile_stats, split_as or "no arguments")
    )
    return program


def find_stored_arguments(
    jaxpr: Jaxpr, in_dims: Sequence[Dims | None], out_dims: Sequence[Dims | None], donated: Sequence[bool]
) -> tuple[list[bool], list[Dims | None]]:
    """Return which arguments are stored sharded to save memory, and the shardings of results.

    State that a step returns updated keeps its sharding, unless `out_dims` says otherwise.
    """
    pairs = find_state(jaxpr)
    stored = [bool(donated and donated[i]) or i in pairs.values() for i in range(len(jaxpr.invars))]
    return stored, [in_dims[pairs[i]] if d is None and i in pairs else d for i, d in enumerate(out_dims)]


def find_state(jaxpr: Jaxpr) -> dict[int, int]:
    """Find the state of a step, such as parameters and optimizer state: the argument of each result that is its next
    value.

    It is the longest sequence of at least two arguments whose types are those of a sequence of results. A wrong guess
    changes how a program is sharded, not what it computes.
    """

    def find() -> dict[int, int]:
        args = [v.aval.plain.strong() for v in jaxpr.invars]
        outs = [v.aval.plain.strong() for v in jaxpr.outvars]
        best, before = (0, 0, 0), [0] * (len(outs) + 1)
        for i, t in enumerate(args):
            lengths = [0] * (len(outs) + 1)
            for k, u in enumerate(outs):
                if t is u or t == u:
                    lengths[k + 1] = before[k] + 1
                    best = max(best, (lengths[k + 1], -i, -k))
            before = lengths
        length, i, k = best[0], -best[1], -best[2]
        return {k - n: i - n for n in range(length)} if length > 1 else {}

    return jaxpr.memoize("state", find)


def compile_for_mesh(
    jaxpr: Jaxpr,
    args: Sequence[Any],
    mesh: Mesh,
    donated: tuple[bool, ...] = (),
    in_shardings: Sequence[Sharding | None] | None = None,
    out_shardings: Sequence[Sharding | None] | None = None,
    names: Sequence[str] = (),
) -> SpmdProgram:
    """Return the program of a jaxpr for arguments with their shardings, compiled at the first call.

    `names` are those of the arguments in messages.
    """
    ins: list[Sharding | None] = []
    for i, a in enumerate(args):
        sharding = None if in_shardings is None else in_shardings[i]
        ins.append(a.sharding if sharding is None and type(a) is ShardedArray else sharding)
    outs = result_shardings(jaxpr, mesh) if out_shardings is None else out_shardings
    terms_in, terms_out = [[unreduced_axes(s, mesh) for s in shardings] for shardings in (ins, outs)]
    if any(terms_in) or any(terms_out):
        terms = with_terms(jaxpr, terms_in, terms_out, mesh)
        shardings = as_terms(ins, terms_in), as_terms(outs, terms_out)
        program = compile_for_mesh(terms, args, mesh, donated, *shardings, names=names)
        result: SpmdProgram = as_called(program, terms_in, terms_out, jaxpr, type_with_sharding)
        return result
    in_dims = [sharding_dims(s, v.aval, mesh) for s, v in zip(ins, jaxpr.invars, strict=True)]
    out_dims = [sharding_dims(s, v.aval, mesh) for s, v in zip(outs, jaxpr.outvars, strict=True)]
    program = partition_and_compile(jaxpr, mesh, in_dims, out_dims, donated, names)
    if out_shardings is None and mesh.explicit_axes and not mesh.are_all_axes_explicit:
        # Over Auto axes the compiler chooses; if the choice contradicts a type, force the type's full sharding.
        types: list[Any] = [v.aval for v in jaxpr.outvars]
        differs = [
            type_sharding(s, t.ndim) != t.explicit_sharding for s, t in zip(program.out_shardings, types, strict=True)
        ]
        if any(differs):
            whole = NamedSharding(mesh, PartitionSpec())
            said = zip(types, out_dims, differs, strict=True)
            forced = [sharding_dims(t.explicit_sharding or whole, t, mesh) if d else dims for t, dims, d in said]
            return partition_and_compile(jaxpr, mesh, in_dims, forced, donated, names)
    return program


def result_shardings(jaxpr: Jaxpr, mesh: Mesh) -> list[Sharding | None]:
    """Return the shardings of results that types or constraints require, else None.

    If all axes of the mesh are Explicit, types determine them completely.
    """
    said = jaxpr.memoize("constraints", lambda: constraints(jaxpr))
    if mesh.are_all_axes_explicit:
        whole = NamedSharding(mesh, PartitionSpec())
        return [getattr(v.aval, "explicit_sharding", None) or said.get(v, whole) for v in jaxpr.outvars]
    return [said.get(v) for v in jaxpr.outvars]


def constraints(jaxpr: Jaxpr) -> dict[Any, NamedSharding]:
    """Map the values with a constraint on all their dimensions to its sharding."""
    found = {}
    for equation in jaxpr.eqns:
        sharding = equation.params["sharding"] if isinstance(equation.primitive, Resharding) else None
        if isinstance(sharding, NamedSharding) and UNCONSTRAINED not in sharding.spec.partitions:
            found[equation.outvars[0]] = sharding
    return found


def call(
    jaxpr: Jaxpr,
    args: Sequence[Any],
    mesh: Mesh,
    donated: tuple[bool, ...] = (),
    in_shardings: Sequence[Sharding | None] | None = None,
    out_shardings: Sequence[Sharding | None] | None = None,
    donate: Callable[[], None] | None = None,
) -> list[ShardedArray]:
    """Return the results of a jaxpr on a mesh."""
    return run(compile_for_mesh(jaxpr, args, mesh, donated, in_shardings, out_shardings), args, donate)


def run(program: SpmdProgram, args: Sequence[Any], donate: Callable[[], None] | None = None) -> list[ShardedArray]:
    """Run a program on arguments, which are resharded to its `in_shardings`."""
    addresses: list[bytes] = []
    held: list[Any] = []
    allocations: list[Sequence[Any]] = []
    for a, sharding, taken in zip(args, program.in_shardings, program.donated, strict=True):
        if donate is not None and not taken and isinstance(a, HeldArray):
            held.append(keep_references(a))  # the program reads it, even if the array is deleted meanwhile
        if not taken and type(a) is ShardedArray and is_sharded_as(a, sharding):
            addresses.append(a.addresses())
            allocations.append(())
            continue
        own = owned_memory(a, sharding) if taken else None
        if own is not None:
            allocations.append(own)
            addresses.append(a.addresses())
            continue
        parts = get_shards(a, sharding)
        held.append(parts)
        if taken:
            backend = memory_backend(program.placements[0].device)
            own = [backend.donated_memory(p) for p in parts]
            allocations.append(own)
            pointers = [m.address for m in own]
        else:
            allocations.append(())
            pointers = [p._address() for p in parts]
        addresses.append(np.array(pointers, np.int64).tobytes())
    if donate is not None:
        donate()
    results = program.executable(b"".join(addresses), allocations, program.placements)
    return [
        ShardedArray(t, s, None, where, memory)
        for t, s, (where, memory) in zip(program.out_types, program.out_shardings, results, strict=True)
    ]


def owned_memory(value: Any, sharding: NamedSharding) -> list[Any] | None:
    """Return the allocations of a donated argument's shards if it has the wanted sharding and the only references to
    them.
    """
    if type(value) is not ShardedArray or not is_sharded_as(value, sharding):
        return None
    found = value.owned_memory()
    if value._parts is not None:
        value._memory = None  # its shards refer to the same memory, so it cannot be reused
    return found


def keep_references(array: HeldArray) -> Any:
    """Return references that keep an array's elements alive after the array is deleted."""
    if type(array) is ShardedArray and array._parts is None:
        return array._memory
    parts: Any = array._held if type(array) is ShardedArray else [array]
    return [(part._buffer, part._memory) for part in parts]


# Results of `is_equivalent_to`, which compares the shards of all devices: P("x") and P("x", None) have the same.
_equivalent: Memo[tuple[Sharding, Sharding, int], bool] = Memo(1024)


def is_sharded_as(array: ShardedArray, sharding: Sharding) -> bool:
    """Return whether an array has the shards of a sharding, on the same devices."""
    own = array.sharding
    if own is sharding:
        return True
    key = own, sharding, len(array.aval.shape)
    found = _equivalent.get(key)
    return found if found is not None else _equivalent.keep(key, own.is_equivalent_to(sharding, key[2]))


# Shardings of arguments over Explicit axes, as the compiler sees them.
_compiled_shardings: Memo[NamedSharding, NamedSharding] = Memo(256)


def drop_explicit_axes(sharding: NamedSharding) -> NamedSharding:
    """Return the sharding of an argument over Auto axes: a split that the compiler has chosen need not be even."""
    if not sharding.mesh.explicit_axes or sharding.spec.unreduced:
        return sharding
    found = _compiled_shardings.get(sharding)
    return found if found is not None else _compiled_shardings.keep(sharding, as_auto_sharding(sharding))


def get_shards(value: Any, sharding: NamedSharding) -> Sequence[ConcreteArray]:
    """Return the shards of an argument for the devices of a sharding, in the order of the mesh."""
    if type(value) is ShardedArray:
        if is_sharded_as(value, sharding):
            return value._held
        return split(value, drop_explicit_axes(sharding))._held
    if not isinstance(value, HeldArray):
        value = from_numpy(value, copy=False)
    if sharding.is_fully_replicated:
        there = [get_placement(d, True) for d in sharding.device_tuple if is_addressable(d)]
        if there and not there[0].memory_backend.reads_host:
            return [put(value, placement) for placement in there]
        if there and isinstance(value, ConcreteArray) and not value._placement.memory_backend.reads_host:
            value = put(value, there[0])
        return [value] * len(there)  # all read the same memory
    return split(value, drop_explicit_axes(sharding))._held

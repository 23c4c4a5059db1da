"""Detection of how a process was started, from the variables of its environment.

Launchers in the narrow sense (weft.launch, MPI, torchrun, variables set by hand) describe the process itself and come
first; schedulers (Slurm, Kubernetes) describe the task in which it, or a launcher, runs.
"""

from __future__ import annotations

import functools
import hashlib
import re
import socket
from collections.abc import Callable, Mapping
from typing import NamedTuple

from weft.base.errors import ArgumentError
from weft.base.joining.client import Place
from weft.base.joining.wire import Address, parse_address

# Ports below those that systems give to outgoing connections.
FIRST_PORT, PORTS, CANDIDATES = 20_480, 8_192, 6
DEACTIVATED = "deactivate"
BY_HAND = "initialize(coordinator_address='host:1234', num_processes=2, process_id=0)"


class Source(NamedTuple):
    """What one launcher or scheduler says about a process; None where it does not say. `variables` are those that were
    read, for messages; `missing` is what has to be set besides."""

    method: str
    variables: Mapping[str, str]
    addresses: tuple[Address, ...] = ()
    size: int | None = None
    rank: int | None = None
    token: str = ""
    joins_by_mpi: bool = False
    missing: tuple[str, ...] = ()


class Start(NamedTuple):
    """How a process joins: by MPI itself, at an address, or alone if both are absent.

    `size` and `rank` are what the launcher of MPI must find, where they are known.
    """

    by_mpi: bool = False
    place: Place | None = None
    size: int | None = None
    rank: int | None = None
    variables: Mapping[str, str] = {}


def candidate_ports(job: str) -> tuple[int, ...]:
    """Return ports for a job, which all of its processes compute alike."""
    digest = hashlib.sha256(job.encode()).digest()
    return tuple(FIRST_PORT + int.from_bytes(digest[2 * i : 2 * i + 2], "big") % PORTS for i in range(CANDIDATES))


def first_host(nodes: str) -> str:
    """Return the first host of a list of Slurm: node[003-007,9],other -> node003."""
    host, rest = "", nodes
    while rest and rest[0] != ",":
        if rest[0] == "[":
            inside, _, rest = rest[1:].partition("]")
            host += re.split("[,-]", inside, maxsplit=1)[0]
        else:
            host, rest = host + rest[0], rest[1:]
    return host


# -- sources -----------------------------------------------------------------------------------------------------------


def _pick(environment: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: environment[name] for name in names if environment.get(name)}


def _integer(variables: Mapping[str, str], *names: str) -> int | None:
    """Return the value of the first of these variables that is set."""
    for name in names:
        if name in variables:
            if not variables[name].isdecimal():
                raise ArgumentError(f"{name} must be a number.", received=f"{name}={variables[name]}")
            return int(variables[name])
    return None


def _addresses(hosts: str, ports: tuple[int, ...], environment: Mapping[str, str]) -> tuple[Address, ...]:
    """Return the addresses of a host at these ports, or at the one that a variable sets."""
    fixed = _integer(environment, "WEFT_COORDINATOR_PORT", "JAX_COORDINATOR_PORT")
    return tuple(Address(hosts, port) for port in ((fixed,) if fixed is not None else ports))


def _parse(variables: Mapping[str, str], name: str) -> tuple[Address, ...]:
    if name not in variables:
        return ()
    try:
        return (parse_address(variables[name]),)
    except ValueError as error:
        raise ArgumentError(f"{name} must be an address.", received=str(error)) from None


def _from_three(method: str, prefix: str, environment: Mapping[str, str]) -> Source | None:
    """Return what variables with this prefix say, which are the three arguments of `initialize`."""
    names = tuple(f"{prefix}_{name}" for name in ("COORDINATOR_ADDRESS", "NUM_PROCESSES", "PROCESS_ID"))
    found = _pick(environment, *names)
    if not found:
        return None
    size, rank = _integer(found, names[1]), _integer(found, names[2])
    missing = tuple(name for name in names if name not in found)
    return Source(method, found, _parse(found, names[0]), size, rank, missing=missing)


def _from_mpi(environment: Mapping[str, str]) -> Source | None:
    sizes = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
    ranks = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMIX_RANK")
    found = _pick(environment, *sizes, *ranks)
    if not found.keys() & {*sizes, "PMIX_RANK"}:
        return None
    size, rank = _integer(found, *sizes), _integer(found, *ranks)
    if size is None:  # PMIx has no variable for it, and Slurm starts processes so
        size = _integer(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
    return Source("mpi", found, _mpi_addresses(environment), size, rank, joins_by_mpi=True)


def _mpi_addresses(environment: Mapping[str, str]) -> tuple[Address, ...]:
    """Return where processes can meet that Open MPI started and whose own MPI is another one."""
    job = environment.get("PMIX_NAMESPACE") or environment.get("OMPI_MCA_orte_hnp_uri", "")
    uri = re.search(r"tcp6?://\[?([^],:]+)", environment.get("OMPI_MCA_orte_hnp_uri", ""))
    local = environment.get("OMPI_COMM_WORLD_LOCAL_SIZE")
    if local is not None and local == environment.get("OMPI_COMM_WORLD_SIZE"):
        return _addresses("localhost", candidate_ports(job), environment)
    return _addresses(uri[1], candidate_ports(job), environment) if uri else ()


def _from_torch(environment: Mapping[str, str]) -> Source | None:
    names = ("WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT")
    found = _pick(environment, *names)
    if "WORLD_SIZE" not in found:
        return None
    size, rank, port = _integer(found, "WORLD_SIZE"), _integer(found, "RANK"), _integer(found, "MASTER_PORT")
    addresses: tuple[Address, ...] = ()
    if "MASTER_ADDR" in found and port is not None:
        # torchrun itself listens at MASTER_PORT.
        run = environment.get("TORCHELASTIC_RUN_ID")
        again = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
        ports = (port,) if run is None else candidate_ports(f"torchrun {run} {port} {again}")
        addresses = _addresses(found["MASTER_ADDR"], ports, environment)
    return Source("torch", found, addresses, size, rank, missing=tuple(n for n in names if n not in found))


def _from_slurm(environment: Mapping[str, str]) -> Source | None:
    names = ("SLURM_JOB_ID", "SLURM_PROCID")
    sizes = ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")
    lists = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
    found = _pick(environment, *names, *sizes, *lists)
    size, rank = _integer(found, *sizes), _integer(found, "SLURM_PROCID")
    if size is None:
        return None
    job = f"slurm {found.get('SLURM_JOB_ID', '')}.{environment.get('SLURM_STEP_ID', '')}"
    nodes = next((found[name] for name in lists if name in found), None)
    addresses = _addresses(first_host(nodes), candidate_ports(job), environment) if nodes else ()
    missing = [name for name in names if name not in found] + ([] if nodes else [lists[0]])
    return Source("slurm", found, addresses, size, rank, f"{job} of {size}", missing=tuple(missing))


def full_host_name() -> str:
    """Return the name of this host with its domain."""
    return socket.getfqdn()


def _from_kubernetes(environment: Mapping[str, str]) -> Source | None:
    """Return what an indexed job says; its pods have host names that end in their index, below one headless service."""
    found = _pick(environment, "JOB_COMPLETION_INDEX")
    rank = _integer(found, "JOB_COMPLETION_INDEX")
    if rank is None:
        return None
    name, dot, domain = full_host_name().partition(".")
    addresses: tuple[Address, ...] = ()
    if name.endswith(f"-{rank}"):
        addresses = _addresses(f"{name.removesuffix(str(rank))}0{dot}{domain}", (FIRST_PORT,), environment)
    return Source("k8s", found, addresses, None, rank, missing=("JAX_NUM_PROCESSES",))


Detector = Callable[[Mapping[str, str]], Source | None]
LAUNCHERS: dict[str, Detector] = {
    "weft": functools.partial(_from_three, "weft", "WEFT"),
    "mpi": _from_mpi,
    "jax": functools.partial(_from_three, "jax", "JAX"),
    "torch": _from_torch,
}
SCHEDULERS: dict[str, Detector] = {"slurm": _from_slurm, "k8s": _from_kubernetes}
METHODS = {**LAUNCHERS, **SCHEDULERS, "ompi": _from_mpi, "mpi4py": _from_mpi}


# -- the place ---------------------------------------------------------------------------------------------------------


def find_start(
    environment: Mapping[str, str],
    address: str | None = None,
    size: int | None = None,
    rank: int | None = None,
    method: str | None = None,
    bind: str | None = None,
) -> Start:
    """Find how a process joins its job.

    Args:
        environment: variables of the environment.
        address, size, rank: arguments of `initialize`, which come before variables.
        method: the only launcher or scheduler to ask, or "deactivate" for none.
        bind: where process 0 listens.

    Returns:
        How to join. ArgumentError is raised if arguments and variables contradict each other, and if variables say that
        the process is one of many but not how it finds them.
    """
    sources = _sources(environment, method)
    launchers = [s for s in sources if s.method in LAUNCHERS]
    own = next((s for s in launchers if s.method == "weft"), None)
    # Its processes inherit the variables of what started the launcher.
    launchers = [own] if own is not None else launchers
    _compare(launchers, size, rank)
    is_alone = size == 1 and rank in (None, 0)  # by arguments
    mpi = next((s for s in launchers if s.joins_by_mpi), None)
    # A scheduler describes the task; inside of it a launcher may start fewer or more processes.
    complete = [s for s in launchers if s.joins_by_mpi or not s.missing]
    asked = complete or launchers + [s for s in sources if s.method in SCHEDULERS]
    size = next((s.size for s in asked if s.size is not None), None) if size is None else size
    rank = next((s.rank for s in asked if s.rank is not None), None) if rank is None else rank
    addresses = _argument_addresses(address) or next((s.addresses for s in asked if s.addresses), ())
    if own is not None and not own.missing:
        addresses = own.addresses  # the launcher is the coordinator
    token = environment.get("WEFT_JOB_TOKEN") or next((s.token for s in asked if s.token), "")
    variables = {name: value for s in asked for name, value in s.variables.items()}
    if mpi is None and (is_alone or (address, size, rank, asked) == (None, None, None, [])):
        return Start()
    if mpi is None and size == 1 and rank in (None, 0):
        if own is None and "TORCHELASTIC_RUN_ID" not in environment:
            _refuse_solo(sources, variables)
        return Start()
    if size is None or rank is None or not addresses:
        if mpi is None:
            _refuse_incomplete(size, rank, addresses, asked)
        return Start(True, None, size, rank, variables)
    if not 0 <= rank < size:
        received = f"num_processes={size}, process_id={rank}"
        raise ArgumentError("process_id must be from 0 to num_processes - 1.", received=received)
    place = Place(addresses, size, rank, token, _bind(bind, addresses), own is not None and not own.missing)
    return Start(mpi is not None, place, size, rank, variables)


def _sources(environment: Mapping[str, str], method: str | None) -> list[Source]:
    if method is None:
        read = [f(environment) for f in (*LAUNCHERS.values(), *SCHEDULERS.values())]
        return [s for s in read if s is not None]
    if method == DEACTIVATED:
        return []
    if method not in METHODS:
        names = ", ".join(map(repr, (*METHODS, DEACTIVATED)))
        raise ArgumentError("cluster_detection_method must be a known one.", received=repr(method), fix=names)
    source = METHODS[method](environment)
    if source is None and method != "mpi4py":
        raise ArgumentError(
            f"The variables of {method!r} must be set in the environment for cluster_detection_method={method!r}.",
            fix=f"cluster_detection_method=None, or {BY_HAND}",
        )
    return [Source("mpi", {}, joins_by_mpi=True) if source is None else source]


def _argument_addresses(address: str | None) -> tuple[Address, ...]:
    if address is None:
        return ()
    try:
        found = parse_address(address)
    except ValueError as error:
        raise ArgumentError(
            "coordinator_address must be an address.", received=str(error), fix="'host:1234' or '[::1]:1234'"
        ) from None
    if found.port == 0 or not found.host:
        raise ArgumentError(
            "coordinator_address must have the host and the port at which all processes find process 0.",
            received=repr(address),
        )
    return (found,)


def _bind(bind: str | None, addresses: tuple[Address, ...]) -> Address | None:
    if bind is None:
        return None
    try:
        return parse_address(bind, addresses[0].port)
    except ValueError as error:
        raise ArgumentError(
            "coordinator_bind_address must be an address of this host.", received=str(error), fix="'0.0.0.0:1234'"
        ) from None


def _compare(launchers: list[Source], size: int | None, rank: int | None) -> None:
    """Raise ArgumentError if arguments and launchers say different counts or indices."""
    for i, (what, argument) in enumerate((("num_processes", size), ("process_id", rank))):
        said = {s.method: (s.size, s.rank)[i] for s in launchers if (s.size, s.rank)[i] is not None}
        started = {s.method: (s.size, s.rank)[i] for s in launchers if s.joins_by_mpi or s.method == "weft"}
        if argument is not None and any(value not in (None, argument) for value in started.values()):
            raise ArgumentError(
                f"{what} must be the launcher's, or left out.",
                received=f"{what}={argument}, and {_list(launchers)}",
                fix="cluster_detection_method='deactivate'   to read no variables",
            )
        if argument is None and len(set(said.values())) > 1:
            raise ArgumentError(
                f"Variables of the environment must agree on {what}.",
                received=_list(launchers),
                fix="unset those that are left over, or cluster_detection_method='torch' to choose one",
            )


def _list(sources: list[Source]) -> str:
    return ", ".join(f"{name}={value}" for s in sources for name, value in s.variables.items())


def _refuse_solo(sources: list[Source], variables: Mapping[str, str]) -> None:
    """Raise ArgumentError if variables say that there is one process, and others that there are many."""
    many = [s for s in sources if s.size is not None and s.size > 1]
    if many and variables:
        raise ArgumentError(
            "Variables of the environment must agree on num_processes: this process would run alone.",
            received=_list([s for s in sources if s.size is not None]),
            fix="weft.distributed.initialize(cluster_detection_method='deactivate')   to run alone",
        )


def _refuse_incomplete(size: int | None, rank: int | None, addresses: tuple[Address, ...], asked: list[Source]) -> None:
    """Raise ArgumentError for a process that is one of many and does not know how to find the others."""
    needed = [
        name
        for name, value in (("coordinator_address", addresses), ("num_processes", size), ("process_id", rank))
        if value is None or value == ()
    ]
    missing = [name for s in asked for name in s.missing]
    raise ArgumentError(
        f"This process is one of several, and {' and '.join(needed)} must be known to join the others.",
        received=_list(asked) or f"num_processes={size}, process_id={rank}",
        fix=(
            *([f"set {', '.join(missing)} in the environment, as the launcher does"] if missing else []),
            BY_HAND,
            "python -m weft.launch -n 2 train.py, or srun for Slurm",
            "weft.distributed.initialize(cluster_detection_method='deactivate')   to run alone",
        ),
    )

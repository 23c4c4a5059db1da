"""Detection of how a process was started: variables of environments, and the place that is found."""

from __future__ import annotations

import pytest

from weft.base.joining import environment
from weft.base.joining.environment import FIRST_PORT, PORTS, candidate_ports, find_start, first_host
from weft.errors import ArgumentError

WEFT = {"WEFT_COORDINATOR_ADDRESS": "a:1", "WEFT_NUM_PROCESSES": "4", "WEFT_PROCESS_ID": "3", "WEFT_JOB_TOKEN": "t"}
JAX = {"JAX_COORDINATOR_ADDRESS": "b:2", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1"}
TORCH = {"MASTER_ADDR": "c", "MASTER_PORT": "3", "WORLD_SIZE": "8", "RANK": "5"}
SLURM = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_NODELIST": "n[03-05,9],m"}
MPI = {"PMI_SIZE": "2", "PMI_RANK": "1", "PMI_FD": "7"}
OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
URI = {"OMPI_COMM_WORLD_LOCAL_SIZE": "1", "OMPI_MCA_orte_hnp_uri": "153157.0;tcp://10.96.0.1,10.148.0.1:34911"}
JOB = {"JOB_COMPLETION_INDEX": "1"}


def only(variables: dict[str, str], *without: str) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name not in without}


@pytest.mark.parametrize(
    ("variables", "host", "rank", "size", "by_mpi"),
    [
        (WEFT, "a", 3, 4, False),
        (JAX, "b", 1, 2, False),
        (TORCH, "c", 5, 8, False),
        (SLURM, "n03", 1, 2, False),
        (SLURM | JAX, "b", 1, 2, False),
        (SLURM | only(JAX, "JAX_PROCESS_ID"), "b", 1, 2, False),  # as JAX, the rest from Slurm
        (SLURM | TORCH, "c", 5, 8, False),  # torchrun within a task
        (WEFT | TORCH | SLURM | MPI, "a", 3, 4, False),  # weft.launch within any of them
        (OPEN_MPI, "localhost", 1, 2, True),
        (OPEN_MPI | URI, "10.96.0.1", 1, 2, True),
        (JOB | {"JAX_NUM_PROCESSES": "3"}, "train-0.pods.default.svc", 1, 3, False),
        (JOB | JAX, "b", 1, 2, False),
    ],
)
def test_a_place_is_found(
    variables: dict[str, str], host: str, rank: int, size: int, by_mpi: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "full_host_name", lambda: "train-1.pods.default.svc")
    start = find_start(variables)
    assert start.by_mpi == by_mpi and start.place is not None
    assert {a.host for a in start.place.addresses} == {host}
    assert (start.place.rank, start.place.size) == (rank, size)
    # The token and the coordinator of weft.launch belong to its processes only.
    assert start.place.token == ("t" if "WEFT_JOB_TOKEN" in variables else start.place.token)
    assert start.place.has_coordinator == ("WEFT_PROCESS_ID" in variables)


def test_mpi_knows_more_than_its_variables() -> None:
    start = find_start(MPI)
    assert start.by_mpi and start.place is None and (start.rank, start.size) == (1, 2)
    assert find_start({}, method="mpi4py").by_mpi
    assert find_start({"PMIX_RANK": "1"} | SLURM)[2:4] == (2, 1)


@pytest.mark.parametrize("variables", [{}, {"HOME": "/"}, {"SLURM_NTASKS": "1", "SLURM_JOB_ID": "7"}, {"RANK": "3"}])
def test_a_process_that_nothing_describes_is_alone(variables: dict[str, str]) -> None:
    start = find_start(variables)
    assert not start.by_mpi and start.place is None


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        *((SLURM, name) for name in ("SLURM_PROCID", "SLURM_STEP_NODELIST")),
        *((TORCH, name) for name in ("RANK", "MASTER_ADDR", "MASTER_PORT")),
        *((JAX, name) for name in JAX),
        (JOB, "JAX_NUM_PROCESSES"),
    ],
)
def test_one_of_many_without_the_others_is_an_error(variables: dict[str, str], named: str) -> None:
    left = only(variables, named)
    with pytest.raises(ArgumentError) as caught:
        find_start(left)
    assert named in str(caught.value), caught.value
    assert all(f"{name}={value}" in str(caught.value) for name, value in left.items())
    assert not find_start(left, method="deactivate").by_mpi


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        (TORCH | JAX, ["WORLD_SIZE=8", "JAX_NUM_PROCESSES=2"]),
        (TORCH | {"WORLD_SIZE": "2"} | JAX, ["RANK=5", "JAX_PROCESS_ID=1"]),
        (MPI | JAX | {"JAX_NUM_PROCESSES": "3"}, ["PMI_SIZE=2", "JAX_NUM_PROCESSES=3"]),
        (TORCH | {"WORLD_SIZE": "1", "RANK": "0"} | SLURM, ["WORLD_SIZE=1", "SLURM_NTASKS=2"]),
        (only(SLURM, "SLURM_NTASKS") | {"SLURM_NTASKS": "two"}, ["SLURM_NTASKS=two"]),
        (JAX | {"JAX_COORDINATOR_ADDRESS": "b"}, ["JAX_COORDINATOR_ADDRESS"]),
    ],
)
def test_variables_that_contradict_each_other_are_listed(variables: dict[str, str], named: list[str]) -> None:
    with pytest.raises(ArgumentError) as caught:
        find_start(variables)
    assert all(name in str(caught.value) for name in named), caught.value


def test_arguments_come_before_variables_but_not_before_launchers() -> None:
    place = find_start(TORCH | SLURM, "[::1]:9", 3, 2, bind="0.0.0.0").place
    assert place is not None and place.addresses == (("::1", 9),) and (place.rank, place.size) == (2, 3)
    assert place.bind == ("0.0.0.0", 9)
    assert find_start(SLURM, size=1).place is None
    for launcher in (WEFT, MPI):
        with pytest.raises(ArgumentError, match="num_processes must be the launcher's"):
            find_start(launcher, "a:1", 3, 1)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("a:1", 2, None), "process_id"),
        (("a:1", None, 0), "num_processes"),
        ((None, 2, 0), "coordinator_address"),
        (("a", 2, 0), "coordinator_address"),
        (("a:0", 2, 0), "coordinator_address"),
        (("a:1", 2, 2), "process_id"),
        ((None, None, None, "lsf"), "cluster_detection_method"),
        ((None, None, None, "slurm"), "SLURM|'slurm'"),
    ],
)
def test_arguments_that_do_not_suffice_are_errors(arguments: tuple[object, ...], named: str) -> None:
    with pytest.raises(ArgumentError, match=named):
        find_start({}, *arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("a", "a"), ("a,b", "a"), ("n[003-007,9]", "n003"), ("n[7,9],x", "n7"), ("r[1-2]n[04-05]-ib,x", "r1n04-ib")],
)
def test_the_first_host_of_slurm(nodes: str, first: str) -> None:
    assert first_host(nodes) == first


def test_ports_of_jobs_are_equal_in_all_processes_and_different_between_jobs() -> None:
    assert candidate_ports("slurm 7.0") == candidate_ports("slurm 7.0") != candidate_ports("slurm 8.0")
    assert all(FIRST_PORT <= port < FIRST_PORT + PORTS for job in "abc" for port in candidate_ports(job))
    # torchrun listens at MASTER_PORT itself.
    below = find_start(TORCH | {"TORCHELASTIC_RUN_ID": "x"}).place
    assert below is not None and all(a.port != 3 for a in below.addresses)
    fixed = find_start(SLURM | {"WEFT_COORDINATOR_PORT": "99"}).place
    assert fixed is not None and [a.port for a in fixed.addresses] == [99]

"""Joining at an address: the protocol, the coordinator, and real processes that start without a launcher."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.processes.hosts import Host, hosts, needs_hosts
from tests.processes.launching import ROOT, SCRIPTS, environment, needs_mpich
from weft.base.joining import wire
from weft.base.joining.client import Joining, Place
from weft.base.joining.coordinator import Coordinator
from weft.base.joining.pmi import PmiServer
from weft.base.joining.wire import Address, RefusedError, parse_address
from weft.errors import ArgumentError, ProcessFailureError


@contextlib.contextmanager
def coordinator(size: int, token: str = "") -> Iterator[Coordinator]:
    """Serve a coordinator at a free port of this host."""
    server = Coordinator(wire.listen("127.0.0.1", 0), size, token)
    server.serve()
    try:
        yield server
    finally:
        server.close()
        until(lambda: server.is_released)
        while OPEN:
            OPEN.pop().close()


OPEN: list[Joining] = []


def joining(server: Coordinator, rank: int, size: int | None = None, token: str = "", seconds: float = 20.0) -> Joining:
    place = Place((Address("127.0.0.1", server.port),), size or server.size, rank, token, has_coordinator=True)
    OPEN.append(Joining(place, f"host test, pid {rank}", seconds))
    return OPEN[-1]


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


# -- protocol ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("a:1", "a", 1), ("10.0.0.1:80", "10.0.0.1", 80), ("[::1]:2", "::1", 2), ("a", "a", 9), ("fe80::1", "fe80::1", 9)],
)
def test_addresses(text: str, host: str, port: int) -> None:
    assert parse_address(text, 9) == (host, port)
    assert parse_address(str(parse_address(text, 9))) == (host, port)


@pytest.mark.parametrize("text", ["a", "a:", "a:x", "a:70000", "[::1]", "::1"])
def test_texts_without_a_port_are_no_addresses(text: str) -> None:
    with pytest.raises(ValueError, match="is not an address"):
        parse_address(text)


def test_the_mapping_of_processes_to_hosts_describes_each(seed: int = 0) -> None:
    chosen = random.Random(seed)
    for _ in range(50):
        on = [chosen.choice("abc") for _ in range(chosen.randint(1, 12))]
        runs = [json.loads(f"[{run}]") for run in wire.process_mapping(on)[9:-2].split("),(")]
        assert [n for number, _, count in runs for n in [number] * count] == [[*dict.fromkeys(on)].index(h) for h in on]


def test_pmi_answers_in_its_text() -> None:
    server = PmiServer(2, {"given": "(a b)"})
    assert server.handle(0, "cmd=init pmi_version=1 pmi_subversion=1") == [
        (0, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0")
    ]
    assert "rc=-1" in server.handle(0, "cmd=init pmi_version=2 pmi_subversion=0")[0][1]
    assert "value=(a b)" in server.handle(1, "cmd=get kvsname=x key=given")[0][1]
    assert "rc=-1" in server.handle(1, "cmd=get kvsname=x key=card")[0][1]
    assert "rc=0" in server.handle(0, "cmd=put kvsname=weft key=card value=host a port=1")[0][1]
    assert server.handle(1, "cmd=get kvsname=x key=card") == [
        (1, "cmd=get_result rc=0 msg=success value=host a port=1")
    ]
    for _ in range(2):
        assert server.handle(1, "cmd=barrier_in") == []
        assert server.handle(0, "cmd=barrier_in") == [(0, "cmd=barrier_out"), (1, "cmd=barrier_out")]
    assert server.handle(0, "cmd=finalize") == [(0, "cmd=finalize_ack")]
    assert server.handle(0, "nonsense") == [] and server.finalized == {0}


# -- coordinator -------------------------------------------------------------------------------------------------------


def test_all_wait_for_the_last() -> None:
    with coordinator(2, "secret") as server:
        first = joining(server, 0, token="secret")
        assert not first._go.wait(0.1)
        second = joining(server, 1, token="secret")
        for each in (first, second):
            each.wait_for_all()
            each.finish()
        until(lambda: server.is_complete)
        assert server.failure is None


@pytest.mark.parametrize(
    ("rank", "size", "token", "reason"),
    [(1, 2, "other", "token"), (1, 3, "", "expects 2"), (5, 2, "", "from 0 to 1"), (0, 2, "", "joined already")],
)
def test_strangers_are_refused_with_a_reason(rank: int, size: int, token: str, reason: str) -> None:
    with coordinator(2) as server:
        first = joining(server, 0)
        with pytest.raises(ArgumentError, match=reason):
            joining(server, rank, size, token)
        joining(server, 1)
        first.wait_for_all()  # others have not been disturbed


def test_what_speaks_another_protocol_changes_nothing() -> None:
    chosen = random.Random(0)
    texts = [b"GET / HTTP/1.1\r\n\r\n", b"cmd=initack pmiid=0\n", b"{}\n", b'{"hello": 1, "proof": [], "nonce": 2}\n']
    texts += [bytes(chosen.randrange(256) for _ in range(chosen.randint(1, 300))) for _ in range(20)]
    with coordinator(2) as server:
        strangers = []
        for text in texts:
            strangers.append(socket.create_connection(("127.0.0.1", server.port)))
            strangers[-1].sendall(text)
        first, _ = joining(server, 0), joining(server, 1)
        first.wait_for_all()
        assert set(server.members) == {0, 1}
        for stranger in strangers:
            stranger.close()


def test_a_coordinator_that_does_not_know_the_token_is_refused_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as connection:
                connection.sendall(f"{wire.GREETING} nonce\n".encode() + wire.encode({"proof": "guessed"}))

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(RefusedError, match="does not know the token"):
            wire.connect(Address("127.0.0.1", server.getsockname()[1]), "secret", {"role": "process"}, 5)
        thread.join()


@pytest.mark.parametrize("missing", [(1,), (1, 2, 4)])
def test_the_missing_are_named_to_all(missing: tuple[int, ...]) -> None:
    with coordinator(5) as server:
        here = [joining(server, rank, seconds=0.5 + rank) for rank in range(5) if rank not in missing]
        for each in here:
            with pytest.raises(ProcessFailureError, match=r"Process(es)? [\d, ]+ of 5 did not join within") as caught:
                each.wait_for_all()
            assert caught.value.failed_processes == missing


def test_the_dead_are_named_to_all_at_once() -> None:
    with coordinator(3) as server:
        first, dying = joining(server, 0), joining(server, 1)
        dying.close()
        start = time.monotonic()
        with pytest.raises(ProcessFailureError, match=r"Process 1 \(host test, pid 1\) has ended .*process 2 had not"):
            first.wait_for_all()
        assert time.monotonic() - start < 5
        with pytest.raises(ProcessFailureError, match="Process 1"):
            joining(server, 2).wait_for_all()


def test_the_silent_are_named_when_mpi_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.base.joining.coordinator.SILENT_SECONDS", 1.5)
    with coordinator(2) as server:
        first, stopped = joining(server, 0, seconds=3.0), joining(server, 1, seconds=3.0)
        stopped._finished = True  # it sends no more, as if it were stopped
        first.wait_for_all()
        with pytest.raises(
            ProcessFailureError, match=r"Process 1 of 2 did not initialize MPI, 1 \(host test"
        ) as caught:
            while True:
                first.check()
                time.sleep(0.05)
        assert caught.value.failed_processes == (1,)


def test_without_a_coordinator_process_0_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts, and says nothing
        place = Place((Address("127.0.0.1", silent.getsockname()[1]),), 2, 1)
        with pytest.raises(ProcessFailureError, match="Process 0, the coordinator") as caught:
            Joining(place, "here", 0.5)
    assert caught.value.failed_processes == (0,)


def test_a_port_in_use_is_an_error_or_the_next_one_is_taken() -> None:
    with socket.create_server(("", 0)) as used, socket.create_server(("", 0)) as other:
        taken = Address("localhost", used.getsockname()[1])
        with pytest.raises(ArgumentError, match="must be able to listen"):
            Joining(Place((taken,), 2, 0), "here", 5)
        free = Address("localhost", other.getsockname()[1])
        other.close()
        places = [Place((taken, free), 2, rank) for rank in range(2)]
        first = Joining(places[0], "here", 20)
        second = Joining(places[1], "there", 20)
        first.wait_for_all()
        second.wait_for_all()
        server = first.coordinator
        assert server is not None and server.port == free.port
        second.close()
        first.close()
        server.close()
        until(lambda: server.is_released)


# -- real processes ----------------------------------------------------------------------------------------------------


def started(
    folder: pathlib.Path, *commands: list[str], on: list[Host] | None = None, **settings: str
) -> list[tuple[int, str]]:
    """Run commands of Python at once, each on one host; return their codes and what they wrote to stderr."""
    running = []
    for i, command in enumerate(commands):
        whole = [sys.executable, *command]
        whole = on[i].command(*whole) if on is not None else whole
        with (folder / f"errors {i}").open("w") as file:
            running.append(subprocess.Popen(whole, env=environment(**settings), cwd=ROOT, stdout=file, stderr=file))
    try:
        codes = [process.wait(120) for process in running]
    finally:
        for process in running:
            process.kill()
    return [(code, (folder / f"errors {i}").read_text()) for i, code in enumerate(codes)]


def free_port() -> int:
    with socket.create_server(("", 0)) as probe:
        return int(probe.getsockname()[1])


def join_commands(folder: pathlib.Path, address: str, count: int, *more: str) -> list[list[str]]:
    """Return the commands of processes that join at an address."""
    return [[str(SCRIPTS / "joining.py"), str(folder), address, str(count), str(i), *more] for i in range(count)]


@needs_mpich
def test_processes_join_at_an_address(tmp_path: pathlib.Path) -> None:
    done = started(tmp_path, *join_commands(tmp_path, f"localhost:{free_port()}", 2), WEFT_JOB_TOKEN="secret")
    assert [code for code, _ in done] == [0, 0], done
    assert {p.name for p in tmp_path.glob("sum *")} == {"sum 3.0 in 0 of 2", "sum 3.0 in 1 of 2"}


@needs_mpich
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["jax", "torch", "slurm"])
def test_processes_join_by_variables(kind: str, tmp_path: pathlib.Path) -> None:
    port, count = str(free_port()), 2
    running = []
    for i in range(count):
        variables = {
            "jax": {
                "JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}",
                "JAX_NUM_PROCESSES": str(count),
                "JAX_PROCESS_ID": str(i),
            },
            "torch": {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "WORLD_SIZE": str(count), "RANK": str(i)},
            "slurm": {
                "SLURM_JOB_ID": port,
                "SLURM_NTASKS": str(count),
                "SLURM_PROCID": str(i),
                "SLURM_STEP_NODELIST": "localhost",
            },
        }[kind]
        command = [sys.executable, str(SCRIPTS / "joining.py"), str(tmp_path)]
        running.append(subprocess.Popen(command, env=environment(**variables), cwd=ROOT, stderr=subprocess.PIPE))
    for process in running:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()
    assert {p.name for p in tmp_path.glob("sum *")} == {"sum 3.0 in 0 of 2", "sum 3.0 in 1 of 2"}


@needs_mpich
@pytest.mark.slow
def test_a_process_that_raises_before_it_joins_is_named_to_the_others(tmp_path: pathlib.Path) -> None:
    commands = join_commands(tmp_path, f"localhost:{free_port()}", 3, "8")
    commands[1] = ["-c", "raise FileNotFoundError('no data on this host')"]
    start = time.monotonic()
    done = started(tmp_path, *commands)
    for rank in (0, 2):
        code, errors = done[rank]
        assert code == 1 and "Process 1 of 3 did not join within 8 s." in errors, errors
    assert time.monotonic() - start < 60


@needs_mpich
@needs_hosts
@pytest.mark.parametrize("version", ["4", pytest.param("6", marks=pytest.mark.slow)])
def test_hosts_join_and_send_over_their_network(version: str, tmp_path: pathlib.Path) -> None:
    with hosts(2) as both:
        if version == "6":
            for host in both:
                subprocess.run(
                    ["ip", "-n", host.name, "address", "del", f"{host.address}/24", "dev", "eth0"], check=True
                )
        address = f"[{both[0].address6}]:4567" if version == "6" else f"{both[0].address}:4567"
        # The hosts share the memory of this machine, which UCX would find.
        settings = {"WEFT_DISTRIBUTED_TRANSPORT": "messages", "WEFT_NETWORK_INTERFACE": "eth0", "UCX_TLS": "tcp,self"}
        done = started(tmp_path, *join_commands(tmp_path, address, 2, "60", "large"), on=both, **settings)
        assert [code for code, _ in done] == [0, 0], done
        shown = subprocess.run(
            [*both[1].command("cat"), "/sys/class/net/eth0/statistics/tx_bytes"], capture_output=True, check=True
        )
        assert int(shown.stdout) > 1 << 20  # the array went through the network, not through memory
    assert {p.name for p in tmp_path.glob("sum *")} == {"sum 3.0 in 0 of 2", "sum 3.0 in 1 of 2"}


def test_variables_of_many_are_an_error_not_a_run_alone() -> None:
    variables = {**os.environ, "SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "7"}
    code = "import weft; weft.distributed.initialize(); print(weft.process_count())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=variables, capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout == ""
    assert "SLURM_NTASKS=2" in done.stderr and "SLURM_STEP_NODELIST" in done.stderr

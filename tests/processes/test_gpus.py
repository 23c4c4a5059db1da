"""GPUs of several processes: real processes with simulated GPUs, whose collectives a stand-in for NCCL does over
sockets, and records."""

from __future__ import annotations

import pathlib
import re

import numpy as np
import pytest

import weft
from tests.processes.launching import SCRIPTS, launched, needs_mpi, results_of_bits
from weft.errors import ArgumentError
from weft.runtime.processes.gpus import divide_gpus

A, B = ["a0", "a1", "a2", "a3"], ["b0", "b1"]  # what hosts have


@pytest.mark.parametrize(
    ("seen", "chosen", "owned"),
    [
        ([A], [None], [[0, 1, 2, 3]]),
        ([A, A], [None, None], [[0, 1], [2, 3]]),
        ([A, A, A], [None, None, None], [[0, 1], [2], [3]]),
        # Of two hosts, whose ranks take turns.
        ([A, B, A, B], [None] * 4, [[0, 1], [0], [2, 3], [1]]),
        # CUDA_VISIBLE_DEVICES shows each process its own, or the same ones in another order, or none.
        ([["a0"], ["a1"]], [None, None], [[0], [0]]),
        ([["a0", "a1"], ["a1", "a0"]], [None, None], [[0], [0]]),
        ([["a0", "a1"], ["a1", "a2"]], [None, None], [[0, 1], [1]]),
        ([A, []], [None, None], [[0, 1, 2, 3], []]),
        # Somebody has said which.
        ([A, A], [[3], [1, 0]], [[3], [1, 0]]),
        ([A, A, A], [[1], None, None], [[1], [0, 2], [3]]),
    ],
)
def test_gpus_are_shared_out(seen: list[list[str]], chosen: list[list[int] | None], owned: list[list[int]]) -> None:
    assert divide_gpus(seen, chosen, [f"host {s[:1]}, pid {i}" for i, s in enumerate(seen)]) == owned


@pytest.mark.parametrize(
    ("seen", "chosen", "text"),
    [
        ([B, B, B], [None] * 3, r"a GPU for each process on host vm.*processes 0, 1, 2, and 2 of 2.*launch -n 2"),
        ([B, B], [[0, 1], None], r"a GPU for each process.*processes 1, and 0 of 2"),
        ([B, B], [[1], [1]], r"Processes 0 \(host vm, pid 0\) and 1 .* cannot use the same GPU"),
        ([B, B], [[2], None], r"local_device_ids of process 0 .* sees\..*\[2\], and it sees 2.*indices from 0 to 1"),
        ([[], B], [[0], None], r"local_device_ids of process 0 .*\[0\], and it sees none.*there is no GPU"),
    ],
)
def test_what_cannot_be_shared_out(seen: list[list[str]], chosen: list[list[int] | None], text: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        divide_gpus(seen, chosen, [f"host vm, pid {i}" for i in range(len(seen))])
    assert re.search(text, str(raised.value), re.DOTALL), raised.value


def sections(file: pathlib.Path) -> dict[str, list[str]]:
    """Return the calls that a process has beginning for each collective of scripts/gpus.py."""
    found: dict[str, list[str]] = {}
    for line in file.read_text().splitlines():
        if line.startswith("nccl"):
            found[next(reversed(found))].append(line)
        else:
            found[line] = []
    return found


def group(*calls: str) -> list[str]:
    return ["ncclGroupStart", *calls, "ncclGroupEnd"]


# The calls for one run of a collective by the ranks of a process: two of four.
CALLS = {
    "psum": lambda r: group(*(f"ncclAllReduce 16 float32, sum; rank {i} of 4" for i in r)),
    "pmax": lambda r: group(*(f"ncclAllReduce 16 float32, max; rank {i} of 4" for i in r)),
    "all_gather": lambda r: group(*(f"ncclAllGather 64 int8; rank {i} of 4" for i in r)),
    "reduce_scatter": lambda r: group(*(f"ncclReduceScatter 4 float32, sum; rank {i} of 4" for i in r)),
    "all_to_all": lambda r: group(
        *(
            f"nccl{word} 16 int8, {where} {other}; rank {i} of 4"
            for i in r
            for word, where in (("Send", "to"), ("Recv", "from"))
            for other in range(4)
        )
    ),
    "ppermute": lambda r: group(
        *(
            f"nccl{word} 64 int8, {where} {(i + step) % 4}; rank {i} of 4"
            for i in r
            for word, where, step in (("Send", "to", 1), ("Recv", "from", 3))
        )
    ),
    "ppermute of one": lambda r: group(
        "ncclSend 64 int8, to 3; rank 0 of 4" if 0 in r else "ncclRecv 64 int8, from 0; rank 3 of 4"
    ),
    "pbroadcast": lambda r: group(*(f"ncclBroadcast 64 int8, of 3; rank {i} of 4" for i in r)),
    "index": lambda r: [],
}


@needs_mpi
def test_programs_on_gpus_of_two_processes(tmp_path: pathlib.Path) -> None:
    """Collectives, arrays, checkpoints and training; each process makes the calls of its own two GPUs. At the end they
    differ, and both are told."""
    done = launched(2, SCRIPTS / "gpus.py", "4", str(tmp_path))
    # Processes that differed leave MPI as it is, which Open MPI counts as a failure of theirs.
    assert all((tmp_path / f"mismatch{rank}.txt").exists() for rank in range(2)), done.errors
    for rank, own in enumerate([(0, 1), (2, 3)]):
        calls = sections(tmp_path / f"{rank}.txt")
        beginning = ["ncclGetUniqueId"] * (rank == 0)
        beginning += group(*(f"ncclCommInitRankConfig rank {i} of 4, not blocking" for i in own))
        assert calls["psum"][: len(beginning)] == beginning, "the first process makes the id"
        calls["psum"] = calls["psum"][len(beginning) :]
        for name, expected in CALLS.items():
            assert calls[name] == 3 * expected(own), name
        assert not any("Init" in line for name in CALLS for line in calls[name]), "one communicator for all of them"
        sizes = 1, 12, 4  # the loss and both gradients, done together
        step = group(*(f"ncclAllReduce {size} float32, sum; rank {i} of 4" for i in own for size in sizes))
        assert calls["training"] == 6 * step
        text = (tmp_path / f"mismatch{rank}.txt").read_text()
        assert re.search(r"process 0: argument 0 is f32\[1,3\] .* process 1: argument 0 is f32\[1,5\]", text), text


@needs_mpi
@pytest.mark.slow
def test_real_programs(of_one: dict[str, np.ndarray], tmp_path: pathlib.Path) -> None:
    """The programs of scripts/bits.py on eight GPUs of two processes, against CPU devices of one. NCCL adds in an order
    of its own."""
    found = results_of_bits(2, tmp_path, platform="gpu")
    assert found.keys() == {name for name in of_one if not name.startswith("divergent")}
    for name, value in found.items():
        dtype = weft.numpy.dtype(name.split(": ")[-1])
        a, b = (x.view(dtype).astype(np.complex128) for x in (value, of_one[name]))
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=0.1 if dtype.itemsize == 2 else 1e-5, err_msg=name)


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_processes_with_a_gpu_each(processes: int, tmp_path: pathlib.Path) -> None:
    done = launched(processes, SCRIPTS / "gpus.py", str(processes), str(tmp_path), "chosen")
    assert done.code == 0, done.errors
    idle = [(tmp_path / f"idle{rank}.txt").exists() for rank in range(processes)]
    assert processes == 1 or all(idle), "what was started with others is done"
    assert ("ncclAllReduce" in (tmp_path / "0.txt").read_text()) == (processes > 1), "one GPU needs no library"


@needs_mpi
@pytest.mark.slow
def test_more_processes_than_gpus(tmp_path: pathlib.Path) -> None:
    done = launched(2, SCRIPTS / "gpus.py", "1", str(tmp_path))
    assert done.code != 0 and "There must be a GPU for each process on host" in done.errors, done.errors


def failed(what: str, folder: pathlib.Path, **settings: str) -> tuple[str, list[str]]:
    """Return the messages with which two processes of scripts/failures.py with a GPU each end, and what each has
    written."""
    done = launched(2, SCRIPTS / "failures.py", what, str(folder), "gpu", **settings)
    files = [folder / f"{rank}.txt" for rank in range(2)]
    return done.errors, [file.read_text() if file.exists() else "" for file in files]


@needs_mpi
def test_a_dead_process_is_named_and_collectives_are_aborted(tmp_path: pathlib.Path) -> None:
    _, (first, _) = failed("dies", tmp_path)
    assert re.search(r"ProcessFailureError .* Process 1 \(host .*, pid \d+\) has died; .* in summed at", first), first
    assert first.rstrip().endswith("ncclCommAbort rank 0 of 2\nthe rest is there"), first


@needs_mpi
@pytest.mark.slow
def test_other_failures(tmp_path: pathlib.Path) -> None:
    """One ends by an error, one does not come, and two do the same in another order."""
    for what in ("raises", "stuck", "order"):
        (tmp_path / what).mkdir()
    _, (first, _) = failed("raises", tmp_path / "raises")
    assert re.search(r"ProcessFailureError .* Process 1 .* has ended \(ValueError: no more data\) while .* psum", first)
    errors, _ = failed("stuck", tmp_path / "stuck", WEFT_STUCK_AFTER="1", WEFT_ABORT_AFTER="3")
    assert re.search(r"Process 1 .* is not in psum at .*is_lost_in_thought", errors, re.DOTALL), errors
    _, texts = failed("order", tmp_path / "order")
    for text in texts:
        assert re.search(r"ProgramMismatchError .* process 0 .* does summed at .*, process 1 .* does doubled", text), (
            text
        )
        assert re.search(r"ncclCommAbort rank \d of 2$", text, re.MULTILINE)

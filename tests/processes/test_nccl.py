"""NCCL's fit: real programs run by a stand-in that gets the calls of NCCL's API; only the transport is new."""

from __future__ import annotations

import itertools
import json
import pathlib
from typing import Any

import numpy as np
import pytest

import weft
from tests.processes.launching import SCRIPTS, launched, needs_mpi

Calls = list[list[Any]]
INIT, START, END = "ncclCommInitRank", "ncclGroupStart", "ncclGroupEnd"


def recorded(count: int, folder: pathlib.Path) -> tuple[dict[str, np.ndarray], list[Calls]]:
    """What the programs of scripts/bits.py compute in so many processes by the stand-in, and the calls of each."""
    file, calls = folder / "results.npz", folder / "calls"
    done = launched(count, SCRIPTS / "bits.py", str(file), str(calls), devices=8 // count)
    assert done.code == 0, done.errors
    with np.load(file) as stored:
        return dict(stored), [json.loads(pathlib.Path(f"{calls}{rank}").read_text()) for rank in range(count)]


def programs(calls: Calls) -> dict[str, Calls]:
    """The calls of each part of the script."""
    found: dict[str, Calls] = {}
    for call in calls:
        if len(call) == 1 and not call[0].startswith("nccl"):
            found[call[0]] = []
        else:
            found[next(reversed(found))].append(call)
    return found


def groups(calls: Calls) -> list[Calls]:
    """What is between the start and the end of each group; nothing is outside of them."""
    found: list[Calls] = []
    inside = False
    for call in calls:
        if call[0] == START:
            assert not inside
            inside = True
            found.append([])
        elif call[0] == END:
            assert inside
            inside = False
        else:
            assert inside, call
            found[-1].append(call)
    return found


def order(calls: Calls, communicators: set[int]) -> list[tuple[Any, ...]]:
    """The groups with calls of some communicators, without what differs between devices: peers and ranks."""
    found = []
    for group in groups(calls):
        own = [c for c in group if c[0] != INIT and c[-2] in communicators]
        kinds = {("ncclSend or ncclRecv" if c[0] in ("ncclSend", "ncclRecv") else c[0], *c[1:3], c[-2]) for c in own}
        if kinds:
            found.append(tuple(sorted(kinds)))
    return found


@needs_mpi
@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_real_programs_by_nccl(count: int, of_one: dict[str, np.ndarray], tmp_path: pathlib.Path) -> None:
    results, calls = recorded(count, tmp_path)
    assert results.keys() == of_one.keys()
    for name, value in of_one.items():
        dtype = weft.numpy.dtype(name.split(": ")[-1])
        a, b = (x.view(dtype).astype(np.complex128) for x in (results[name], value))
        # NCCL adds in an order of its own.
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=0.1 if dtype.itemsize == 2 else 1e-5, err_msg=name)
    for own in calls:
        initialized = [tuple(call[1:4]) for call in own if call[0] == INIT]
        assert len(initialized) == len(set(initialized)), "a communicator is made once for a group"
        sizes = {index: len([1 for i, _, _ in initialized if i == index]) for index, _, _ in initialized}
        for group in itertools.chain.from_iterable(groups(c) for c in programs(own).values()):
            for index in {c[-2] for c in group if c[0] in ("ncclAllReduce", "ncclAllGather", "ncclReduceScatter")}:
                ranks = [c[-1] for c in group if c[-2] == index]
                assert len(ranks) == len(set(ranks)) == sizes[index], "one call for each device of this process"
    names = {call[0] for call in calls[0]}
    assert {"ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclSend", "ncclRecv"} <= names
    # All processes call in one order; where devices take different branches, those of one communicator do.
    by_program = [programs(own) for own in calls]
    shared = set.intersection(*({call[1] for call in own if call[0] == INIT} for own in calls))
    assert shared
    for name, first in by_program[0].items():
        for other in by_program[1:]:
            for communicators in [{index} for index in shared] if name == "divergent" else [shared]:
                assert order(first, communicators) == order(other[name], communicators), name

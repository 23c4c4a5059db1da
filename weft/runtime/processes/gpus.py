"""Assignment of GPUs to processes: processes exchange what they see, and those that see the same GPUs divide them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from weft.base.errors import ArgumentError
from weft.base.source import user_line
from weft.runtime.processes import world


class Gpu(NamedTuple):
    """GPU that a process sees: its name, and an identifier that is unique among all hosts."""

    name: str
    hardware: str


def assign_gpus(seen: Sequence[Gpu], chosen: Sequence[int] | None) -> list[dict[int, Gpu]]:
    """Return the GPUs of each process by the indices of its driver.

    `seen` are the GPUs that this process sees, and `chosen` the indices of those that it uses, if they were specified.
    All processes call it together, and all raise if the choices conflict.
    """
    here = world.current()
    told = [json.dumps([seen, None if chosen is None else list(chosen), here.page.where]).encode()]
    if here.size > 1:
        with world.together(None, "weft.devices('gpu')", line=user_line()):
            told = here.all_gather(told[0], doing="weft.devices('gpu')")
    processes = [json.loads(text) for text in told]
    everywhere = [[Gpu(*gpu) for gpu in gpus] for gpus, _, _ in processes]
    indices = divide_gpus(
        [[gpu.hardware for gpu in gpus] for gpus in everywhere],
        [chosen for _, chosen, _ in processes],
        [where for _, _, where in processes],
    )
    return [{i: gpus[i] for i in own} for gpus, own in zip(everywhere, indices, strict=True)]


def divide_gpus(
    seen: Sequence[Sequence[str]], chosen: Sequence[Sequence[int] | None], where: Sequence[str]
) -> list[list[int]]:
    """Return the positions of each process's GPUs among those that it sees.

    GPUs that no process has chosen are divided among the processes that see the same GPUs and have chosen none, in the
    order of their ranks; the counts differ by one at most. `where` describes the host of each process, for errors.
    """
    owned: list[list[int]] = [[] for _ in seen]
    taken: dict[str, int] = {}
    for rank, indices in enumerate(chosen):
        if indices is not None:
            _check_chosen(rank, indices, seen[rank], where[rank])
            owned[rank] = list(indices)
            _take(taken, rank, [seen[rank][i] for i in indices], where)
    alike: dict[frozenset[str], list[int]] = {}
    for rank, gpus in enumerate(seen):
        if chosen[rank] is None and gpus:
            alike.setdefault(frozenset(gpus), []).append(rank)
    for ranks in alike.values():
        free = [gpu for gpu in seen[ranks[0]] if gpu not in taken]
        if len(free) < len(ranks):
            raise ArgumentError(
                f"There must be a GPU for each process on {where[ranks[0]].split(',')[0]}.",
                received=f"processes {', '.join(map(str, ranks))}, and {len(free)} of {len(seen[ranks[0]])} GPUs",
                fix=(
                    f"python -m weft.launch -n {max(len(free), 1)} train.py   starts a process for each GPU of a host",
                    "CUDA_VISIBLE_DEVICES=''   in processes that shall use none",
                ),
            )
        each, more = divmod(len(free), len(ranks))
        start = 0
        for i, rank in enumerate(ranks):
            part = free[start : start + each + (i < more)]
            start += len(part)
            owned[rank] = sorted(seen[rank].index(gpu) for gpu in part)
            _take(taken, rank, part, where)
    return owned


def _take(taken: dict[str, int], rank: int, gpus: Sequence[str], where: Sequence[str]) -> None:
    """Assign GPUs to a process; raise if one belongs to another process already."""
    for gpu in gpus:
        other = taken.setdefault(gpu, rank)
        if other != rank:
            raise ArgumentError(
                f"Processes {other} ({where[other]}) and {rank} ({where[rank]}) cannot use the same GPU.",
                received=f"GPU {gpu}",
                fix="weft.distributed.initialize(local_device_ids=...) with other ones in each process of a host",
            )


def _check_chosen(rank: int, indices: Sequence[int], seen: Sequence[str], where: str) -> None:
    if not indices or any(not 0 <= i < len(seen) for i in indices):
        one = f"indices from 0 to {len(seen) - 1}; see nvidia-smi and CUDA_VISIBLE_DEVICES"
        none = "no local_device_ids, since there is no GPU that it sees; see nvidia-smi and CUDA_VISIBLE_DEVICES"
        raise ArgumentError(
            f"local_device_ids of process {rank} ({where}) must be indices of GPUs that it sees.",
            received=f"{list(indices)}, and it sees {len(seen) or 'none'}",
            fix=one if seen else none,
        )

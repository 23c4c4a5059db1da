"""Overlap of a loader with the step: the time of a loop over the time of the slower of its two halves, and batches per
second beside torch's DataLoader if it is installed.

python benchmarks/data_loader.py [--quick] [--json FILE]

The loader is made as slow as the step, which is the worst case: 1.0 is a perfect overlap, 2.0 is none. "sleeping"
samples wait, as if for a disk; "computing" ones run NumPy, which shares the cores with the step, so it is a figure of a
machine that does nothing else. Then the samples per second that workers
deliver, for small and large samples.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import pathlib
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft.data import Loader

BATCH, BATCHES = 8, 60
AT_MOST = 1.1


@dataclass(frozen=True)
class Waiting:
    """Source whose samples wait, as if for a disk."""

    seconds: float
    count: int = BATCH * BATCHES

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> np.ndarray:
        time.sleep(self.seconds)
        return np.full(64, index, np.float32)


@dataclass(frozen=True)
class Computing:
    """Source whose samples are computed by NumPy."""

    rows: int
    count: int = BATCH * BATCHES

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> np.ndarray:
        found = np.full((self.rows, 64), index, np.float32)
        return np.tanh(found).sum(0)


@dataclass(frozen=True)
class Sample:
    """Source of samples of a number of bytes."""

    size: int
    count: int = 2048

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> np.ndarray:
        return np.full(self.size, index % 251, np.uint8)


def step(rows: int) -> Callable[[Any], Any]:
    """Make a jitted step that takes about the time of loading `rows` rows."""
    weight = wnp.ones((64, 64), np.float32) / 64

    @weft.jit
    def run(batch: Any) -> Any:
        x = wnp.broadcast_to(batch.mean(0), (rows, 64))
        for _ in range(4):
            x = wnp.tanh(x @ weight)
        return x.sum()

    return lambda batch: run(batch).block_until_ready()


def seconds(batches: Iterable[Any], use: Callable[[Any], Any]) -> float:
    """Measure a loop."""
    start = time.perf_counter()
    for batch in batches:
        use(batch)
    return time.perf_counter() - start


def overlap(source: Any, use: Callable[[Any], Any], repeats: int, **options: Any) -> tuple[float, float, float]:
    """Return the best times of the loader alone, the step alone and the loop."""
    ready = [np.zeros((BATCH, 64), np.float32)] * BATCHES
    loader = Loader(source, BATCH, **options)
    seconds(loader, lambda batch: None)
    alone, steps, together = [], [], []
    for _ in range(repeats):
        alone.append(seconds(loader, lambda batch: None))
        steps.append(seconds(ready, use))
        together.append(seconds(loader, use))
    loader.close()
    return min(alone), min(steps), min(together)


def waiting_step(duration: float) -> Callable[[Any], Any]:
    return lambda batch: time.sleep(duration)


def computing_step(target: float) -> Callable[[Any], Any]:
    """Make a step that takes about `target` seconds."""
    rows = 256
    while True:
        use = step(rows)
        batch = np.zeros((BATCH, 64), np.float32)
        use(batch)
        if min(seconds([batch], use) for _ in range(5)) > target / 2:
            return use
        rows *= 2


def overlaps(repeats: int) -> list[dict[str, Any]]:
    """Measure the loop over the slower of its halves, for kinds of samples and workers."""
    found = []
    kinds: Sequence[tuple[str, dict[str, Any], int]] = [
        ("prefetch only", {}, 1),
        ("2 threads", {"workers": 2}, 2),
        ("2 processes (fork)", {"workers": 2, "worker_type": "fork"}, 2),
        ("no prefetch, no workers", {"prefetch": 0}, 1),
    ]
    for name, options, workers in kinds:
        duration = 0.004
        source = Waiting(duration * workers / BATCH)
        result = overlap(source, waiting_step(duration), repeats, **options)
        found.append({"samples": "sleeping", "workers": name, **figures(result)})
    for name, options, _ in kinds:
        source = Computing(2048)
        alone = min(seconds(Loader(source, BATCH, **options), lambda batch: None) for _ in range(2)) / BATCHES
        result = overlap(source, computing_step(alone), repeats, **options)
        found.append({"samples": "computing", "workers": name, **figures(result)})
    return found


def figures(times: tuple[float, float, float]) -> dict[str, float]:
    alone, steps, together = (1e3 * each / BATCHES for each in times)
    return {"loader": alone, "step": steps, "loop": together, "ratio": together / max(alone, steps)}


def rates(repeats: int) -> list[dict[str, Any]]:
    """Measure the samples per second that workers deliver, beside torch's DataLoader."""
    found = []
    for size in (1_000, 150_528):
        source = Sample(size)
        for workers in (0, 2):
            sides: dict[str, Callable[[], Iterable[Any]]] = {
                "weft": lambda s=source, w=workers: Loader(s, 32, workers=w, worker_type="fork" if w else "thread")
            }
            if importlib.util.find_spec("torch"):
                import torch

                sides["torch"] = lambda s=source, w=workers: torch.utils.data.DataLoader(s, 32, num_workers=w)
            best = {side: 0.0 for side in sides}
            for _ in range(repeats):
                for side, make in sides.items():
                    took = seconds(make(), lambda batch: None)
                    best[side] = max(best[side], len(source) / took)
            found.append({"bytes": size, "processes": workers, **best})
    return found


def main() -> None:
    weft.config.update("num_threads", 1)  # a core for the step, others for the loader
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few repeats")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures to a file")
    args = parser.parse_args()
    repeats = 2 if args.quick else 5
    loops, samples = overlaps(repeats), rates(repeats)
    print(f"{'samples':10} {'workers':26} {'loader':>9} {'step':>9} {'loop':>9}   ms a batch; loop / slower half")
    for line in loops:
        times = " ".join(f"{line[name]:9.2f}" for name in ("loader", "step", "loop"))
        mark = "" if line["ratio"] <= AT_MOST or line["workers"].startswith("no ") else f"   more than {AT_MOST}"
        print(f"{line['samples']:10} {line['workers']:26} {times}   {line['ratio']:.2f}{mark}")
    print("\nsamples a second")
    for line in samples:
        ratio = f"   ratio {line['weft'] / line['torch']:.2f}" if "torch" in line else ""
        rates_text = " ".join(f"{side} {line[side]:9.0f}" for side in ("weft", "torch") if side in line)
        print(f"{line['bytes']:8} bytes, {line['processes']} processes: {rates_text}{ratio}")
    if args.json:
        args.json.write_text(json.dumps({"overlap": loops, "samples": samples}, indent=1))


if __name__ == "__main__":
    main()

"""Grain as a source of batches, whose position it knows itself."""

from __future__ import annotations

import json
from typing import Any

import grain
import grain.python
import numpy as np

from weft.data import adapt


def firsts(batches: Any) -> list[float]:
    return [float(np.asarray(x).flat[0]) for x, _, _ in batches]


def resumed(make: Any, taken: int = 2) -> None:
    """Resuming delivers the batches that follow, also of another object and through JSON."""
    whole = firsts(make().batches())
    batches = make().batches()
    for _ in range(taken):
        next(batches)
    state = json.loads(json.dumps(batches.state()))
    assert firsts(make().resume(state)) == firsts(batches) == whole[taken:]


def test_grain() -> None:
    make = lambda: grain.MapDataset.range(10).shuffle(seed=3).map(lambda i: (np.full(2, i), i)).batch(3)
    adapter = adapt(make())
    assert adapter.kind == "Grain dataset" and adapter.size == 4
    found = list(adapter.batches())
    assert [x.shape for x, _, _ in found] == [(3, 2), (3, 2), (3, 2), (1, 2)]
    assert sorted(int(v) for _, y, _ in found for v in y) == list(range(10))
    resumed(lambda: adapt(make()))
    resumed(lambda: adapt(make().to_iter_dataset()))
    assert firsts(adapter.batches(0, start=2)) == firsts(found[2:])


def test_grain_loader() -> None:
    python = grain.python

    class Rows:
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> Any:
            return {"x": np.full(2, index, np.float32)}

        def __repr__(self) -> str:
            return "Rows"  # Grain compares it when it restores a position

    def make() -> Any:
        sampler = python.IndexSampler(8, shard_options=python.NoSharding(), shuffle=True, num_epochs=1, seed=2)
        return adapt(python.DataLoader(data_source=Rows(), sampler=sampler, operations=[python.Batch(2)]))

    dicts = [batch for batch, _, _ in make().batches()]
    assert len(dicts) == 4 and dicts[0]["x"].shape == (2, 2)
    batches = make().batches()
    next(batches)
    state = json.loads(json.dumps(batches.state()))
    rest = [batch["x"].tolist() for batch, _, _ in make().resume(state)]
    assert rest == [batch["x"].tolist() for batch in dicts[1:]]

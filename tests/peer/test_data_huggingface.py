"""Datasets of Hugging Face as sources of samples."""

from __future__ import annotations

import json

import datasets

from weft.data import Loader, adapt


def test_datasets_of_samples() -> None:
    data = datasets.Dataset.from_dict({"tokens": [[1, 2, 3], [4, 5, 6], [7, 8, 9]], "label": [0, 1, 0]})
    adapter = adapt(data, batch_size=2)
    assert (adapter.size, adapter.samples) == (2, 3)
    x, y, _ = next(adapter.batches())
    assert x["tokens"].tolist() == [[1, 2, 3], [4, 5, 6]] and x["label"].tolist() == [0, 1] and y is None
    pairs = Loader(data, 2, transforms=[lambda row: (row["tokens"], row["label"])], shuffle=True, workers=2)
    assert [tokens.shape for tokens, _ in pairs] == [(2, 3), (1, 3)]
    stream = data.to_iterable_dataset()
    loader = Loader(stream, 2)
    assert [batch["tokens"].shape for batch in loader] == [(2, 3), (1, 3)]
    batches = iter(Loader(stream, 1))
    next(batches)
    other = Loader(data.to_iterable_dataset(), 1)
    other.restore(json.loads(json.dumps(batches.state())))
    assert [batch["label"].tolist() for batch in other] == [[1], [0]]

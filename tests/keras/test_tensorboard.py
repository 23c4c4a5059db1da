"""What TensorBoard reads: files of records, read here by a parser of their own."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest

from tests.protobuf import fields
from weft import keras
from weft.keras.callbacks.tensorboard import records


def read(directory):
    """The events of the one file in a directory, as dicts of fields."""
    (path,) = directory.glob("events.out.tfevents.*")
    content, at, found = path.read_bytes(), 0, []
    while at < len(content):
        (length,) = struct.unpack_from("<Q", content, at)
        assert struct.unpack_from("<I", content, at + 8)[0] == records.mask_crc32c(content[at : at + 8])
        message = content[at + 12 : at + 12 + length]
        assert struct.unpack_from("<I", content, at + 12 + length)[0] == records.mask_crc32c(message)
        found.append(dict(fields(message)))
        at += 16 + length
    return found


def values(events):
    """(step, tag, fields) of all values of summaries."""
    for event in events:
        for field, summary in fields(event.get(5, b"")):
            assert field == 1
            parts = dict(fields(summary))
            yield event[2], parts[1].decode(), parts


def test_checksums():
    assert records.crc32c(b"123456789") == 0xE3069283  # the value that the polynomial's specification has
    assert records.crc32c(bytes(32)) == 0x8A9136AA
    assert fields(records.integer(3, 300) + records.content(2, "ab")) == [(3, 300), (2, b"ab")]
    assert records.integer(1, -1)[1:] == b"\xff" * 9 + b"\x01"


def test_what_is_written(tmp_path):
    x = np.random.RandomState(0).randn(20, 3).astype("float32")
    model = keras.Sequential(
        [keras.Input((3,)), keras.layers.Dense(2, name="first"), keras.layers.Dense(1, name="last")], name="net"
    )
    model.compile("sgd", loss="mse")
    board = keras.callbacks.TensorBoard(
        tmp_path, histogram_freq=1, write_images=True, update_freq=2, write_steps_per_second=True
    )
    history = model.fit(
        x, x[:, :1], batch_size=4, epochs=2, verbose=0, callbacks=[board], validation_data=(x, x[:, :1])
    ).history
    events = read(tmp_path / "train")
    assert events[0][3] == b"brain.Event:2"
    graph = next(event[4] for event in events if 4 in event)
    nodes = [fields(node) for field, node in fields(graph) if field == 1]
    names = [dict(node)[1].decode() for node in nodes]
    assert names[-2:] == ["net/first", "net/last"]
    assert (3, b"net/first") in nodes[-1] and (2, b"Dense") in nodes[-1]
    found = list(values(events))
    losses = {step: struct.unpack("<f", parts[2])[0] for step, tag, parts in found if tag == "epoch_loss"}
    assert losses == dict(enumerate(history["loss"]))
    assert [step for step, tag, _ in found if tag == "batch_loss"] == [2, 4, 6, 8, 10]
    assert {"epoch_learning_rate", "epoch_steps_per_second"} <= {tag for _, tag, _ in found}
    histogram = next(dict(fields(parts[5])) for _, tag, parts in found if tag == "net/first/kernel/histogram")
    assert np.frombuffer(histogram[7]).sum() == struct.unpack("<d", histogram[3])[0] == 6
    picture = next(dict(fields(parts[4])) for _, tag, parts in found if tag == "net/first/kernel/image/0")
    assert (picture[1], picture[2], picture[3]) == (3, 2, 1)
    assert picture[4].startswith(b"\x89PNG\r\n\x1a\n")
    start = picture[4].index(b"IDAT")
    (size,) = struct.unpack(">I", picture[4][start - 4 : start])
    assert len(zlib.decompress(picture[4][start + 4 : start + 4 + size])) == 3 * (1 + 2)
    validated = [struct.unpack("<f", parts[2])[0] for _, tag, parts in values(read(tmp_path / "validation"))]
    assert validated == history["val_loss"]


def test_a_profile_and_embeddings(tmp_path):
    model = keras.Sequential([keras.Input((2,), dtype="int32"), keras.layers.Embedding(5, 3), keras.layers.Flatten()])
    model.add(keras.layers.Dense(1))
    model.compile("sgd", loss="mse")
    board = keras.callbacks.TensorBoard(tmp_path, profile_batch=(2, 3), embeddings_freq=1, embeddings_metadata="l.tsv")
    model.fit(np.zeros((8, 2), "int32"), np.zeros((8, 1), "float32"), batch_size=2, verbose=0, callbacks=[board])
    assert any((tmp_path / "profile").rglob("*"))
    assert "l.tsv" in (tmp_path / "train" / "projector_config.pbtxt").read_text()
    (table,) = (tmp_path / "train").glob("*_embedding.tsv")
    assert np.loadtxt(table).shape == (5, 3)
    with pytest.raises(ValueError, match="profile_batch must be the index of a batch"):
        keras.callbacks.TensorBoard(profile_batch=(3, 2))
    with pytest.raises(ValueError, match="update_freq must be"):
        keras.callbacks.TensorBoard(update_freq="step")

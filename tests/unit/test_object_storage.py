"""Checkpoints in object storage: those of fsspec's memory, which has no directories, renames or memory maps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as onp
import pytest

import weft
import weft.numpy as np
from weft.checkpointing import CheckpointManager, metadata, restore, save
from weft.checkpointing.source import Directory
from weft.errors import ArgumentError, FileFormatError
from weft.sharding import AxisType, NamedSharding, PartitionSpec as P

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def url() -> Iterator[str]:
    system = fsspec.filesystem("memory")
    yield "memory://bucket/run"
    if system.exists("/bucket"):
        system.rm("/bucket", recursive=True)


def names(url: str) -> list[str]:
    system = fsspec.filesystem("memory")
    return sorted(name.rpartition("/")[2] for name in system.find(url))


def tree() -> dict[str, Any]:
    mesh = weft.make_mesh((8,), ("d",), (AxisType.Auto,))
    split = weft.device_put(onp.arange(64, dtype=onp.float32).reshape(16, 4), NamedSharding(mesh, P("d")))
    return {"split": split, "half": np.arange(6, dtype=np.bfloat16), "empty": np.zeros((0, 3)), "step": 7, "name": "x"}


def assert_same(found: Any, expected: Any) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        onp.testing.assert_array_equal(onp.asarray(found[name]), onp.asarray(value), name)


def test_saved_and_restored(url: str) -> None:
    state = tree()
    save(url, state, step=3, metadata={"a": 1})
    assert metadata(url).step == 3 and metadata(url + "/").metadata == {"a": 1}
    assert_same(restore(url), state)
    rows = NamedSharding(weft.make_mesh((2,), ("d",), (AxisType.Auto,), devices=weft.devices()[:2]), P("d"))
    assert restore(url, shardings={**dict.fromkeys(state), "split": rows})["split"].sharding == rows
    with pytest.raises(FileExistsError, match="overwrite=True"):
        save(url, state)
    save(url, {"other": np.ones(3)}, overwrite=True)
    assert_same(restore(url), {"other": onp.ones(3, onp.float32)})
    assert len(names(url)) == 2  # the files of the first save are gone


def test_only_what_is_wanted_is_read(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    large, small = onp.zeros((1 << 18,), onp.float32), onp.arange(8, dtype=onp.float32)
    save(url, {"large": large, "small": small})
    system, read = fsspec.filesystem("memory"), []
    original = type(system).cat_file

    def count(self: Any, path: str, start: Any = None, end: Any = None, **options: Any) -> bytes:
        found: bytes = original(self, path, start=start, end=end, **options)
        read.append(len(found))
        return found

    monkeypatch.setattr(type(system), "cat_file", count)
    source = Directory(url)
    onp.testing.assert_array_equal(source.read("small", ((0, 8),)), small)
    assert 0 < sum(read) < 10_000


def test_a_failed_save_leaves_the_last_one(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    save(url, tree(), step=1)
    before = names(url)
    system = fsspec.filesystem("memory")

    def fail(self: Any, path: str, value: bytes, **options: Any) -> None:
        raise OSError("the storage is gone")

    with monkeypatch.context() as patch:
        patch.setattr(type(system), "pipe_file", fail)
        with pytest.raises(OSError, match="the storage is gone"):
            save(url, {"other": np.ones(3)}, step=2, overwrite=True)
    assert metadata(url).step == 1 and set(before) <= set(names(url))
    assert_same(restore(url), tree())
    save(url, {"other": np.ones(3)}, step=2, overwrite=True)
    assert len(names(url)) == 2


def test_damage_is_found(url: str) -> None:
    save(url, {"a": np.arange(1000)})
    system = fsspec.filesystem("memory")
    (file,) = [name for name in system.find(url) if name.endswith(".safetensors")]
    damaged = bytearray(system.cat_file(file))
    damaged[-1] ^= 1
    system.pipe_file(file, bytes(damaged))
    with pytest.raises(FileFormatError, match="a checksum does not match"):
        restore(url)
    index = json.loads(system.cat_file(f"{url}/index.json"))
    assert index and not any(name.endswith(".partial") for name in names(url))
    with pytest.raises(FileNotFoundError, match="There is no checkpoint"):
        restore(url + "/nothing")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_manager_keeps_the_last_steps(url: str, asynchronous: bool) -> None:
    with CheckpointManager(url, max_to_keep=2, enable_async_checkpointing=asynchronous) as manager:
        for step in range(4):
            manager.save(step, {"w": np.full(4, step)})
        manager.wait_until_finished()
        assert manager.all_steps() == [2, 3] and manager.latest_step() == 3
        onp.testing.assert_array_equal(manager.restore()["w"], onp.full(4, 3))
        onp.testing.assert_array_equal(manager.restore(2)["w"], onp.full(4, 2))
    assert CheckpointManager(url).all_steps() == [2, 3]


def test_the_layout_of_orbax_needs_a_directory(url: str) -> None:
    with pytest.raises(ArgumentError, match="layout='orbax' needs a directory"):
        CheckpointManager(url, layout="orbax")

"""Checkpoints whose bytes changed after they were saved are refused."""

from __future__ import annotations

import io
import json
import pathlib
import shutil
import zipfile
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import checkpointing
from weft.checkpointing import tensor_file
from weft.checkpointing.source import Directory
from weft.errors import FileFormatError

pytestmark = pytest.mark.tiny


@pytest.fixture
def saved(tmp_path: pathlib.Path) -> pathlib.Path:
    tree = {"a": wnp.arange(12.0).reshape(3, 4), "b": np.arange(3) * 1j, "empty": np.zeros((0, 3)), "n": np.int8(3)}
    checkpointing.save(tmp_path / "one", {**tree, "key": weft.random.key(0)})
    return tmp_path / "one"


def change(path: pathlib.Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_every_flipped_bit_of_an_array_is_found(saved: pathlib.Path) -> None:
    file = next(saved.glob("*.safetensors"))
    original = file.read_bytes()
    begin = 8 + int.from_bytes(original[:8], "little")
    assert len(original) > begin + 90
    for at in range(begin, len(original), 7):
        change(file, at)
        with pytest.raises(FileFormatError, match="checksum does not match"):
            checkpointing.restore(saved)
        file.write_bytes(original)
    checkpointing.restore(saved)


def test_the_file_of_another_checkpoint_is_found(saved: pathlib.Path, tmp_path: pathlib.Path) -> None:
    tree = checkpointing.restore(saved)
    checkpointing.save(tmp_path / "two", {**tree, "a": tree["a"] + 1})
    shutil.copy(next((tmp_path / "two").glob("*.safetensors")), next(saved.glob("*.safetensors")))
    with pytest.raises(FileFormatError, match="checksum does not match"):
        checkpointing.restore(saved)


def test_checkpoints_without_checksums_are_read(saved: pathlib.Path) -> None:
    def edit(change: Any) -> None:
        index = json.loads((saved / "index.json").read_text())
        for entry in index["arrays"].values():
            for piece in entry["pieces"]:
                change(piece)
        (saved / "index.json").write_text(json.dumps(index))

    expected = checkpointing.restore(saved)
    edit(lambda piece: piece.pop("crc32"))
    found = checkpointing.restore(saved)
    for one, other in zip(weft.tree.leaves(expected), weft.tree.leaves(found), strict=True):
        assert str(one) == str(other)
    for text in ("0", "00000000" * 3, 5, "zzzzzzzz"):
        edit(lambda piece, text=text: piece.update(crc32=text))
        with pytest.raises(FileFormatError):
            checkpointing.restore(saved)


def test_parts_are_verified_alone(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_file, "BLOCK", 64)
    monkeypatch.setattr(tensor_file, "_INLINE", 0)
    value = np.arange(256, dtype=np.float32).reshape(32, 8)  # two rows a block
    checkpointing.save(tmp_path, {"a": value})
    file = next(tmp_path.glob("*.safetensors"))
    change(file, len(file.read_bytes()) - 1)
    source = Directory(tmp_path)
    np.testing.assert_array_equal(source.read("a", ((3, 9), (2, 5))), value[3:9, 2:5])
    np.testing.assert_array_equal(source.read("a", ((0, 30), (0, 8))), value[:30])
    with pytest.raises(FileFormatError, match="checksum does not match"):
        source.read("a", ((29, 31), (0, 1)))


def test_files_of_numpy_that_declare_too_much(tmp_path: pathlib.Path) -> None:
    """The size that a header declares is compared with the file before anything is allocated."""
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (68719476736,), }".ljust(117) + b"\n"
    data = b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + bytes(16)
    (tmp_path / "a.npy").write_bytes(data)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", data)
    for source in (tmp_path / "a.npy", tmp_path / "a.npz", io.BytesIO(data)):
        with pytest.raises(FileFormatError, match="must store the bytes that its header declares"):
            wnp.load(source)
    np.savez_compressed(tmp_path / "b.npz", a=np.zeros(10**5))
    assert wnp.load(tmp_path / "b.npz")["a"].shape == (10**5,)

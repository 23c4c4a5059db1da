"""safetensors files: any tree is restored, and malformed files raise one class of error with the reason."""

from __future__ import annotations

import json
import os
import pathlib
import random
import struct
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import optim
from weft.errors import ArgumentError, FileFormatError, NarrowingOverflowError, ParameterShapeError
from weft.modules import safetensors, serialization

State = namedtuple("State", ["count", "moments"])


def file_of(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(low: Any = 0, high: Any = 4, shape: Any = (1,), dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape) if isinstance(shape, tuple) else shape, "data_offsets": [low, high]}


def same(a: Any, b: Any) -> None:
    assert weft.tree.structure(a) == weft.tree.structure(b)
    for x, y in zip(weft.tree.leaves(a), weft.tree.leaves(b), strict=True):
        assert type(x) is type(y)
        np.testing.assert_array_equal(x, y)


# -- trees -------------------------------------------------------------------------------------------------------------


def test_the_state_of_an_optimizer(tmp_path: pathlib.Path) -> None:
    params = {"dense": {"kernel": wnp.ones((3, 2)), "bias": wnp.zeros(2)}, "scales": [wnp.ones(2), wnp.ones(3)]}
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.adamw(optim.linear_schedule(0.1, 0.0, 10)))
    state = optimizer.init(params)
    gradients = weft.tree.map(wnp.ones_like, params)
    _, state = optimizer.update(gradients, state, params)
    path = tmp_path / "state.safetensors"
    safetensors.save_file((params, state), path)
    restored = safetensors.load_file(path, target=(params, optimizer.init(params)))
    same(restored, (params, state))
    _, state = optimizer.update(gradients, state, params)
    _, again = optimizer.update(gradients, restored[1], params)
    same(again, state)


def test_nodes_and_scalars_of_all_kinds() -> None:
    tree = {
        "state": State(3, (wnp.arange(3), None, ())),
        "numbers": [True, 1, 2.5, 1 + 2j, np.float16(3), np.arange(2)],
        "empty": {"none": None, "list": []},
        "nothing": wnp.zeros((0, 5)),
    }
    tree["numbers"][3] = np.complex64(1 + 2j)
    data = safetensors.serialize(tree)
    back = safetensors.deserialize(data, target=tree)
    assert weft.tree.structure(back) == weft.tree.structure(tree)
    assert back["state"].count == 3 and type(back["state"].count) is int and back["state"].moments[1] is None
    assert back["numbers"][:3] == [True, 1, 2.5] and [type(n) for n in back["numbers"][:3]] == [bool, int, float]
    assert type(back["numbers"][5]) is np.ndarray and back["nothing"].shape == (0, 5)
    plain = safetensors.deserialize(data)
    assert sorted(plain) == ["nothing", "numbers", "state"] and sorted(plain["state"]) == ["count", "moments"]
    state = serialization.from_state_dict(tree["state"], plain["state"])
    assert int(state.count) == 3 and state.moments[1] is None and state.moments[2] == ()


def test_what_does_not_fit_the_target() -> None:
    data = safetensors.serialize({"a": wnp.ones(3), "b": wnp.ones(2)})
    with pytest.raises(ArgumentError, match=r"missing \['c'\], too many \['b'\]"):
        safetensors.deserialize(data, target={"a": wnp.ones(3), "c": wnp.ones(2)})
    with pytest.raises(ParameterShapeError, match="'b' in these bytes must have the shape"):
        safetensors.deserialize(data, target={"a": wnp.ones(3), "b": wnp.ones(4)})


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        (wnp.ones(3), "must have keys"),
        ({"__metadata__": wnp.ones(3)}, "own key"),
        (OrderedDict([(1, wnp.ones(3)), ("1", wnp.ones(2))]), "must differ as text"),
        ({"": wnp.ones(3)}, "a string without"),
        ({"a.b": wnp.ones(3)}, "choose another separator"),
        ({"a": "text"}, "no dtype"),
        ({"a": 1 << 70}, "no dtype object"),
    ],
)
def test_what_cannot_be_saved(tree: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        safetensors.serialize(tree)


def test_scalars_that_do_not_fit() -> None:
    data = safetensors.serialize({"a": np.array([1 << 40])})
    with pytest.raises(NarrowingOverflowError, match="'a'"):
        safetensors.deserialize(data)
    with weft.enable_x64(True):
        assert int(safetensors.deserialize(data)["a"][0]) == 1 << 40


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [("a", "a.b"), ("a.b", "a"), ("x.a.b.c", "x.a"), ("x.a", "x.a.b.c")])
def test_names_that_are_an_array_and_a_dict(names: tuple[str, str]) -> None:
    data = file_of({names[0]: entry(0, 4), names[1]: entry(4, 8)}, struct.pack("<2f", 1, 2))
    with pytest.raises(FileFormatError, match="must not be a dict too") as caught:
        safetensors.deserialize(data)
    assert names[0] in str(caught.value) and names[1] in str(caught.value) and "separator=" in str(caught.value)
    whole = safetensors.deserialize(data, separator="/")
    assert {name: float(value[0]) for name, value in whole.items()} == {names[0]: 1.0, names[1]: 2.0}


BROKEN: dict[str, bytes] = {
    "twice": file_of(b'{"a":' + json.dumps(entry()).encode() + b',"a":' + json.dumps(entry()).encode() + b"}", b"0000"),
    "must be a dict, got a list": file_of([]),
    "must be a dict, got a str": file_of(b'"a"'),
    "not valid JSON": file_of(b"[" * 100_000),
    "not valid JSON: 'utf-8'": file_of('{"a": 1}'.encode("utf-16")),
    "not valid JSON: Expecting": file_of(b"{"),
    "must have dtype, shape": file_of({"a": 3}),
    "must have dtype, shape and": file_of({"a": {"dtype": "F32"}}),
    "has the invalid shape None": file_of({"a": entry(shape=None)}, b"0000"),
    r"has the invalid shape \[-1\]": file_of({"a": entry(shape=(-1,))}, b"0000"),
    r"has the invalid shape \[1.0\]": file_of({"a": entry(shape=(1.0,))}, b"0000"),
    r"has the invalid shape \[True\]": file_of({"a": entry(shape=(True,))}, b"0000"),
    "has the invalid shape .1000": file_of({"a": entry(shape=(10**60,))}, b"0000"),
    "cannot have the shape": file_of({"a": entry(shape=(1,) * 100)}, b"0000"),
    "has the unknown dtype 'F99'": file_of({"a": entry(dtype="F99")}, b"0000"),
    r"has the unknown dtype \['F32'\]": file_of({"a": entry(dtype=["F32"])}, b"0000"),
    r"data_offsets \['0', 4\]": file_of({"a": entry(low="0")}, b"0000"),
    r"data_offsets \[0, 1e": file_of({"a": entry(high=1e300)}, b"0000"),
    "is at bytes 4 to 0": file_of({"a": entry(4, 0)}, b"0000"),
    "must be at 4 to 8": file_of({"a": entry(), "b": entry()}, b"0000"),  # one over the other
    "is at bytes 5 to 9 of 9, but must be at 4 to 8": file_of({"a": entry(), "b": entry(5, 9)}, b"000000000"),  # a hole
    "the arrays end at": file_of({"a": entry()}, b"00000"),
    "metadata must be strings": file_of({"__metadata__": {"a": 1}}),
    "metadata must be": file_of({"__metadata__": []}),
    "too few": b"1234567",
    "a header of": struct.pack("<Q", 1 << 63) + b"{}",
}


@pytest.mark.parametrize("words", BROKEN)
def test_broken_files(words: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "broken.safetensors"
    path.write_bytes(BROKEN[words])
    with pytest.raises(FileFormatError, match=words) as caught:
        safetensors.load_file(path)
    assert str(path) in str(caught.value)


def test_paths_that_are_not_regular_files(tmp_path: pathlib.Path) -> None:
    paths = [tmp_path]
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        paths.append(tmp_path / "pipe")
    if os.path.exists("/dev/zero"):
        (tmp_path / "endless").symlink_to("/dev/zero")
        paths.append(tmp_path / "endless")
    for path in paths:
        with pytest.raises(FileFormatError, match="not a regular file"):
            safetensors.load_file(path)
    with pytest.raises(FileNotFoundError):
        safetensors.load_file(tmp_path / "nowhere")


def test_a_file_is_written_whole_or_not_at_all(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "weights"
    safetensors.save_file({"a": wnp.ones(2)}, path)
    before = path.read_bytes()
    (tmp_path / "link").symlink_to(path)
    safetensors.save_file({"a": wnp.ones(2)}, tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and path.read_bytes() == before

    def fail(*_: Any) -> None:
        raise OSError("no room")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no room"):
        safetensors.save_file({"a": wnp.zeros(9)}, path)
    assert path.read_bytes() == before and sorted(p.name for p in tmp_path.iterdir()) == ["link", "weights"]


# -- random changes ----------------------------------------------------------------------------------------------------

PIECES = [
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b",",
    b"-",
    b"1e9",
    b"null",
    b"true",
    b"9" * 30,
    b'"F64"',
    b"NaN",
    b"\\ud800",
    b".",
]


def mutated(data: bytes, rng: random.Random) -> bytes:
    result = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(result) + 1)
        match rng.randrange(6):
            case 0:
                result[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                result[at:at] = rng.choice(PIECES)
            case 2:
                del result[at : at + rng.randint(1, 9)]
            case 3:  # the header is told to be of another length
                result[:8] = struct.pack("<Q", rng.choice([0, 1, len(result) - 8, len(result), 1 << 40, (1 << 64) - 1]))
            case 4:  # numbers of the header
                digits = [i for i, byte in enumerate(result) if 48 <= byte < 58] or [0]
                result[rng.choice(digits) : rng.choice(digits)] = str(rng.choice([0, 1, 3, 1 << 31, 1 << 64])).encode()
            case _:
                other = rng.randrange(len(result) + 1)
                result[at:at] = result[min(at, other) : max(at, other)]
    return bytes(result)


@pytest.mark.parametrize("seed", range(4))
def test_changed_files_are_read_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    tree = {
        "a": {"b": np.arange(3, dtype=np.float32), "c": np.ones((2, 2), np.int16)},
        "d": np.array(True),
        "e": np.zeros((0, 3), np.uint8),
    }
    data = safetensors.serialize(tree, {"step": "3"})
    refused = 0
    for _ in range(400):
        changed = mutated(data, rng)
        try:
            safetensors.deserialize(changed)
            safetensors.metadata_of(changed)
        except FileFormatError:
            refused += 1
        except NarrowingOverflowError as error:
            assert "these bytes" in str(error)
    assert refused > 200

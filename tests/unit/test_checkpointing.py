"""Checkpoints: any tree comes back bit by bit, on any mesh, whatever happens while it is written; and a file of any
other content is refused by one class of error."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.unit.test_safetensors import mutated
from weft import checkpointing, optim
from weft.base import dtypes
from weft.base.promotion import DTYPES
from weft.checkpointing import index, restoring, saving, source, tensor_file
from weft.checkpointing.processes import Processes
from weft.errors import (
    ArgumentError,
    ArgumentTypeError,
    CheckpointMismatchError,
    DonatedArrayError,
    FileFormatError,
)
from weft.ir.types import array_type
from weft.modules import safetensors
from weft.runtime.device import get_placement
from weft.runtime.sharded import ShardedArray, on_device, type_with_sharding
from weft.sharding import (
    AxisType,
    Mesh,
    NamedSharding,
    PartitionSpec as P,
    SingleDeviceSharding,
    device as sharding_device,
)

ROOT = pathlib.Path(__file__).parents[2]
DEVICES = weft.devices()
State = namedtuple("State", ["count", "moments"])


@weft.tree_util.register_dataclass
@dataclass
class Model:
    weight: Any
    bias: Any


@weft.tree_util.register_pytree_node_class
class Pair:
    """Node that does not name its children."""

    def __init__(self, *children: Any) -> None:
        self.children = children

    def tree_flatten(self) -> Any:
        return self.children, None

    @classmethod
    def tree_unflatten(cls, _: Any, children: Any) -> Pair:
        return cls(*children)


def bits(array: Any) -> bytes:
    return np.asarray(array._value if isinstance(array, weft.Array) else array).tobytes()


def assert_same(a: Any, b: Any, structure: bool = True) -> None:
    """Assert that trees are equal bit by bit, and arrays have the same weak types."""
    if structure:
        assert weft.tree.structure(a) == weft.tree.structure(b)
    for x, y in zip(weft.tree.leaves(a), weft.tree.leaves(b), strict=True):
        if isinstance(x, weft.Array):
            assert isinstance(y, weft.Array) and (x.aval.shape, x.dtype, x.weak_type) == (y.shape, y.dtype, y.weak_type)
        else:
            assert type(x) is type(y)
            if not isinstance(x, (np.ndarray, np.generic)):
                assert repr(x) == repr(y)
                continue
            assert x.shape == y.shape and x.dtype == y.dtype
        assert bits(x) == bits(y)


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an array of random bits, nans with payloads among them."""
    raw = rng.integers(0, 256, (*shape, dtype.itemsize), np.uint8)
    if dtype == dtypes.bool_:
        raw &= 1
    if dtype.name in ("int4", "uint4", "int2", "uint2", "int1", "uint1"):
        return rng.integers(0, 2, shape).astype(dtype)
    return raw.reshape(-1).view(dtype).reshape(shape) if raw.size else np.zeros(shape, dtype)


# -- trees -------------------------------------------------------------------------------------------------------------


def random_tree(rng: np.random.Generator, depth: int = 3) -> Any:
    """Return a tree of any nodes and leaves."""
    kind = rng.integers(12) if depth else rng.integers(6, 12)
    children = [random_tree(rng, depth - 1) for _ in range(rng.integers(0, 4))] if kind < 6 else []
    match kind:
        case 0:
            names = ["w", "a.b", "", "layer/~/linear_1", "x[0]", "\\", "__metadata__", "é"]
            return dict(zip(rng.permutation(names).tolist(), children, strict=False))
        case 1:
            return children
        case 2:
            return tuple(children)
        case 3:
            return State(random_tree(rng, 0), children)
        case 4:
            return OrderedDict(zip([3, 1, 2], children, strict=False))
        case 5:
            return Model(children, Pair(*children[:1]))
        case 6:
            values: list[Any] = [
                None,
                True,
                -7,
                1 << 5000,
                0.1,
                -0.0,
                float("nan"),
                float("-inf"),
                2.5 - 1j,
                "é\n",
                b"\0a",
            ]
            return values[rng.integers(len(values))]
        case 7:
            return weft.random.split(weft.random.key(int(rng.integers(99))), int(rng.integers(1, 4)))
        case 8:
            return wnp.asarray(float(rng.normal()))  # weakly typed
    shape = tuple(rng.integers(0, 4, rng.integers(0, 4)).tolist())
    names = sorted(DTYPES)
    value = random_array(rng, shape, DTYPES[names[rng.integers(len(names))]])
    if kind == 11 or dtypes.canonicalize_dtype(value.dtype) != value.dtype:
        return value
    return weft.device_put(value, DEVICES[rng.integers(8)]) if kind == 10 else wnp.asarray(value)


@pytest.mark.parametrize("seed", range(40))
def test_any_tree_comes_back(seed: int, tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng(seed)
    tree = random_tree(rng)
    checkpointing.save(tmp_path / "a", tree, max_file_bytes=int(rng.integers(1, 200)))
    back = checkpointing.restore(tmp_path / "a", like=tree)
    assert_same(back, tree)
    for x, y in zip(weft.tree.leaves(back), weft.tree.leaves(tree), strict=True):
        if isinstance(y, weft.Array):
            assert x.devices() == y.devices() and x.committed == y.committed
    # Without the classes of nodes leaves have the same names, and come back again and again.
    plain = checkpointing.restore(tmp_path / "a")
    saved = checkpointing.metadata(tmp_path / "a").tree
    assert_same(checkpointing.restore(tmp_path / "a", like=saved), plain)
    checkpointing.save(tmp_path / "b", plain)
    first, second = (index.read(str(tmp_path / name)) for name in "ab")
    assert first.arrays.keys() == second.arrays.keys() and first.values.keys() == second.values.keys()
    assert_same(checkpointing.restore(tmp_path / "b"), plain)


def test_plain_trees_without_like(tmp_path: pathlib.Path) -> None:
    tree = {"a": (1, [None, "text"]), 3: State(2.5, ()), "m": Model(np.ones(2, np.float32), wnp.ones(1)), "e": {}}
    tree = OrderedDict(tree)  # keys of two types do not sort
    checkpointing.save(tmp_path / "a", tree)
    back = checkpointing.restore(tmp_path / "a")
    assert list(back) == ["a", 3, "m", "e"] and back["a"] == [1, [None, "text"]]
    assert back[3] == {"count": 2.5, "moments": []} and back["e"] == {}
    assert type(back["m"]["weight"]) is np.ndarray and isinstance(back["m"]["bias"], weft.Array)
    # The fields of the class are not in the order of their names; shardings go by name.
    checkpointing.save(tmp_path / "model", tree["m"])
    back = checkpointing.restore(tmp_path / "model", shardings={"weight": DEVICES[1], "bias": np.ndarray})
    assert back["weight"].device == DEVICES[1] and type(back["bias"]) is np.ndarray
    deep: Any = wnp.ones(1)
    for _ in range(200):
        deep = [deep]
    checkpointing.save(tmp_path / "deep", deep)
    assert_same(checkpointing.restore(tmp_path / "deep"), deep)
    with pytest.raises(ArgumentError, match="more than 200 levels"):
        checkpointing.save(tmp_path / "deeper", [[deep]])
    leaf = wnp.arange(3)
    checkpointing.save(tmp_path / "leaf", leaf)
    assert_same(checkpointing.restore(tmp_path / "leaf"), leaf)


@pytest.mark.parametrize("name", [*DTYPES, "key<fry>", "float0"])
def test_every_dtype(name: str, tmp_path: pathlib.Path) -> None:
    with weft.enable_x64(True):
        rng = np.random.default_rng(0)
        if name == "key<fry>":
            tree: Any = [
                weft.random.key(1),
                weft.random.split(weft.random.key(2), (2, 3)),
                weft.random.key(3)[None][:0],
            ]
        elif name == "float0":
            tree = [np.zeros((2, 3), weft.float0), np.zeros((), weft.float0)]
        else:
            values = [random_array(rng, shape, DTYPES[name]) for shape in ((), (3,), (2, 3), (0, 2))]
            tree = [values, [wnp.asarray(value) for value in values], values[2].T, values[1][::2]]
        checkpointing.save(tmp_path / "a", tree)
        assert_same(checkpointing.restore(tmp_path / "a", like=tree), tree)
        if name not in ("float0",):
            assert_same(checkpointing.restore(tmp_path / "a"), tree)


def test_64_bits_without_x64(tmp_path: pathlib.Path) -> None:
    with weft.enable_x64(True):
        checkpointing.save(tmp_path / "a", {"w": wnp.arange(3.0), "n": np.arange(2)})
    with pytest.raises(CheckpointMismatchError, match=r"w: f64\[3\] needs enable_x64"):
        checkpointing.restore(tmp_path / "a")
    back = checkpointing.restore(tmp_path / "a", shardings=np.ndarray)
    assert back["w"].dtype == np.float64 and back["w"].flags.writeable and back["n"].dtype == np.int64


def test_big_endian_arrays_become_native(tmp_path: pathlib.Path) -> None:
    checkpointing.save(tmp_path / "a", {"w": np.arange(3, dtype=">f4")})
    back = checkpointing.restore(tmp_path / "a")["w"]
    assert back.dtype == np.float32 and back.tolist() == [0, 1, 2]


def test_the_state_of_a_training_goes_on_exactly(tmp_path: pathlib.Path) -> None:
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), optim.inject_hyperparams(optim.adamw)(learning_rate=0.1))
    target = wnp.array([1.0, -2.0, 3.0])

    @weft.jit
    def step(state: Any) -> Any:
        params, moments, key, count = state
        key, noise = weft.random.split(key)
        loss = lambda p: wnp.sum((p["w"] - target + 0.01 * weft.random.normal(noise, (3,))) ** 2)
        updates, moments = optimizer.update(weft.grad(loss)(params), moments, params)
        return optim.apply_updates(params, updates), moments, key, count + 1

    def fresh() -> Any:
        params = {"w": wnp.zeros(3)}
        return params, optimizer.init(params), weft.random.key(0), 0

    state = fresh()
    for _ in range(3):
        state = step(state)
    checkpointing.save(tmp_path / "a", state, step=3, metadata={"data": {"position": 48}})
    like = fresh()
    back = checkpointing.restore(tmp_path / "a", like=like)
    assert back[3] == 3 and type(back[3]) is int  # as `like` has it: a Python number
    assert_same(back[:3], state[:3])
    found = checkpointing.metadata(tmp_path / "a")
    assert found.step == 3 and found.metadata == {"data": {"position": 48}} and found.metrics is None
    for _ in range(3):
        state, back = step(state), step(back)
    assert_same(back, state)


# -- what does not fit -------------------------------------------------------------------------------------------------


def test_everything_that_does_not_fit_is_listed(tmp_path: pathlib.Path) -> None:
    tree = {
        "a": {"w": wnp.ones((2, 3)), "b": wnp.ones(2)},
        "n": 3,
        "s": "text",
        "k": weft.random.key(0),
        "odd": wnp.ones(5),
    }
    checkpointing.save(tmp_path / "a", tree)
    mesh = Mesh(np.array(DEVICES), ("x",), (AxisType.Explicit,))
    like = {
        "a": {"w": wnp.ones((3, 2)), "b": wnp.ones(2, wnp.int32)},
        "n": "3",
        "k": wnp.zeros(2),
        "more": 1,
        "odd": 1.0,
    }
    with pytest.raises(CheckpointMismatchError) as caught:
        checkpointing.restore(tmp_path / "a", like=like)
    message = str(caught.value)
    for line in [
        "missing: more\n",
        "unexpected: s\n",
        "a.w: f32[2,3] in the checkpoint, f32[3,2] in like",
        "a.b: f32[2] in the checkpoint, i32[2] in like",
        "n: int in the checkpoint, str in like",
        "k: key<fry>[] in the checkpoint, f32[2] in like",
        "odd: f32[5] in the checkpoint, float in like",
        str(tmp_path),
    ]:
        assert line in message
    with pytest.raises(CheckpointMismatchError, match="odd: Dimension 0 has 5 elements, which do not split"):
        checkpointing.restore(
            tmp_path / "a", shardings={**dict.fromkeys("ans"), "k": None, "odd": NamedSharding(mesh, P("x"))}
        )
    with pytest.raises(CheckpointMismatchError, match="k: random keys have no NumPy form"):
        checkpointing.restore(tmp_path / "a", shardings=np.ndarray)
    with pytest.raises(CheckpointMismatchError, match=r"unexpected: k, n, odd, s\n(.|\n)*partial=True"):
        checkpointing.restore(tmp_path / "a", like={"a": tree["a"]})
    assert_same(checkpointing.restore(tmp_path / "a", like={"a": tree["a"]}, partial=True), {"a": tree["a"]})
    with pytest.raises(ArgumentTypeError, match="shardings must contain shardings, devices"):
        checkpointing.restore(tmp_path / "a", shardings="cpu")
    with pytest.raises(ArgumentError, match="prefix"):
        checkpointing.restore(tmp_path / "a", shardings={"a": None})


@pytest.mark.parametrize(
    ("saved", "like", "expected"),
    [
        (3, np.int8(0), np.int8(3)),
        (300, np.int8(0), None),
        (3, np.float32(0), None),
        (True, np.bool_(False), np.bool_(True)),
        (0.5, np.float16(0), np.float16(0.5)),
        (0.1, np.float32(0), None),
        (float("inf"), np.float32(0), np.float32("inf")),
        (1e300, np.float32(0), None),
        (float("nan"), np.float32(0), np.float32("nan")),
        (3, np.zeros(1, np.int32), None),
        (3, wnp.int32(0), wnp.int32(3)),
        (3, wnp.asarray(0), wnp.asarray(3)),
        (np.int64(3), 0, 3),
        (np.float32(3), 0, None),
        (np.arange(1), 0, None),
        (1, 1.0, None),
        (1, True, None),
        ("a", "b", "a"),
        (wnp.bfloat16(2.5), 0.0, 2.5),
    ],
)
def test_numbers_and_arrays_without_dimensions(saved: Any, like: Any, expected: Any, tmp_path: pathlib.Path) -> None:
    checkpointing.save(tmp_path / "a", [saved])
    if expected is None:
        with pytest.raises(CheckpointMismatchError, match=r"0: .* in the checkpoint, .* in like"):
            checkpointing.restore(tmp_path / "a", like=[like])
    else:
        assert_same(checkpointing.restore(tmp_path / "a", like=[like]), [expected])


def test_what_cannot_be_saved(tmp_path: pathlib.Path) -> None:
    tree = {"f": print, "o": np.array([None]), "ok": 1, "s": np.array("text")}
    with pytest.raises(
        ArgumentTypeError, match=r"f: <built-in.*\n.*o: a NumPy array of dtype object\n.*s: a NumPy array"
    ):
        checkpointing.save(tmp_path / "a", tree)
    with pytest.raises(ArgumentTypeError, match=r"x: f32\[\] is traced; save outside of jit"):
        weft.jit(lambda x: checkpointing.save(tmp_path / "a", {"x": x}))(1.0)
    with pytest.raises(ArgumentError, match="must differ as text"):
        checkpointing.save(tmp_path / "a", OrderedDict([(1, 2), ("1", 3)]))
    gone = wnp.ones(3)
    gone.delete()
    with pytest.raises(DonatedArrayError, match="w: This array was deleted"):
        checkpointing.save(tmp_path / "a", {"w": gone})
    for metadata in ({"a": print}, {"a": float("nan")}, {1: 2}, {"a": (1, 2)}):
        with pytest.raises(ArgumentTypeError, match="The metadata of a checkpoint must be values of JSON"):
            checkpointing.save(tmp_path / "a", {}, metadata=metadata)
    with pytest.raises(ArgumentTypeError, match="The step of a checkpoint"):
        checkpointing.save(tmp_path / "a", {}, step=1.0)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="max_file_bytes"):
        checkpointing.save(tmp_path / "a", {}, max_file_bytes=0)
    assert not (tmp_path / "a").exists()
    with pytest.raises(FileNotFoundError, match="no such directory"):
        checkpointing.restore(tmp_path / "a")
    (tmp_path / "a").mkdir()
    with pytest.raises(FileNotFoundError, match="no save to it was finished"):
        checkpointing.restore(tmp_path / "a")
    checkpointing.save(tmp_path / "a", {"x": 1})
    with pytest.raises(FileExistsError, match="overwrite=True"):
        checkpointing.save(tmp_path / "a", {"x": 2})
    checkpointing.save(tmp_path / "a", {"x": 2}, overwrite=True)
    assert checkpointing.restore(tmp_path / "a") == {"x": 2}


# -- meshes ------------------------------------------------------------------------------------------------------------

ALL = np.array(DEVICES)
MESHES = [
    Mesh(ALL.reshape(4, 2), ("x", "y")),
    Mesh(ALL.reshape(2, 4), ("x", "y")),
    Mesh(ALL[::-1].reshape(8, 1), ("x", "y")),
    Mesh(ALL[2:6].reshape(2, 2), ("x", "y")),
    Mesh(ALL.reshape(2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2),
]
SPECS = [P(), P("x"), P("x", "y"), P(None, "y"), P(("y", "x")), P("y", "x")]
VALUES = np.arange(64 * 8, dtype=np.float32).reshape(64, 8)


@pytest.mark.parametrize("seed", range(12))
def test_saved_on_one_mesh_restored_on_another(seed: int, tmp_path: pathlib.Path) -> None:
    rng = random.Random(seed)

    def any_sharding() -> NamedSharding:
        return NamedSharding(rng.choice(MESHES), rng.choice(SPECS))

    words = np.random.default_rng(seed).integers(0, 1 << 32, (16, 8, 2), np.uint32)
    keys = weft.random.wrap_key_data(words)
    tree = {"w": weft.device_put(VALUES, any_sharding()), "k": weft.device_put(keys, any_sharding())}
    checkpointing.save(tmp_path / "a", tree, max_file_bytes=1000)
    entries = index.read(str(tmp_path / "a")).arrays
    for name, array in tree.items():  # each part once
        assert len(entries[name].pieces) == len({s.index.__repr__() for s in array.addressable_shards})
    assert sum(f.stat().st_size for f in (tmp_path / "a").glob("*.safetensors")) < VALUES.nbytes + words.nbytes + 9999
    for _ in range(3):
        sharding = any_sharding()
        back = checkpointing.restore(tmp_path / "a", shardings=sharding)
        for name, array in back.items():
            assert array.sharding is sharding and array.committed
            assert_same(array.gather_to_one_device(), tree[name].gather_to_one_device())
            for shard in array.addressable_shards:
                assert bits(shard.data) == bits(tree[name].gather_to_one_device()[shard.index])
                assert shard.data.device == shard.device and shard.data.committed
    abstract = weft.tree.map(lambda x: weft.ShapeDtypeStruct(x.shape, x.dtype, sharding=any_sharding()), tree)
    back = checkpointing.restore(tmp_path / "a", like=abstract, shardings={"w": DEVICES[5], "k": None})
    assert back["w"].sharding == SingleDeviceSharding(DEVICES[5]) and back["k"].sharding is abstract["k"].sharding
    assert bits(back["w"]) == VALUES.tobytes()
    assert checkpointing.restore(tmp_path / "a", like={"w": VALUES}, partial=True)["w"].tobytes() == VALUES.tobytes()
    assert_same(checkpointing.restore(tmp_path / "a", like=tree), tree)
    plain = checkpointing.restore(tmp_path / "a")
    assert plain["w"].sharding == wnp.ones(1).sharding and not plain["w"].committed


def test_only_what_is_needed_is_read(tmp_path: pathlib.Path) -> None:
    mesh, other = MESHES[0], MESHES[1]
    tree = {"w": weft.device_put(VALUES, NamedSharding(mesh, P("x", "y"))), "v": wnp.ones(1000), "n": 3}
    checkpointing.save(tmp_path / "a", tree)

    def read(like: Any, shardings: Any) -> int:
        opened = source.Directory(tmp_path / "a")
        restoring.restore_from(opened, like, shardings, True)
        return opened.bytes_read

    like = {"w": VALUES}
    whole = VALUES.nbytes
    assert read(like, None) == whole and read({"n": 0}, None) == 0
    assert read(like, NamedSharding(other, P("x", "y"))) == whole  # each part once
    assert read(like, NamedSharding(other, P("x"))) == whole
    assert read(like, NamedSharding(other, P())) == whole  # once, not for each device
    # A process with two of the eight devices reads a quarter.
    few = Mesh(np.array([weft.Device(d.id, "cpu", 0 if d.id < 2 else 1) for d in DEVICES]), ("x",))
    assert read(like, NamedSharding(few, P("x"))) == whole // 4
    assert read(like, NamedSharding(few, P(None, "x"))) == whole // 4


def test_files_that_others_can_read(tmp_path: pathlib.Path) -> None:
    tree = {"params": {"w": wnp.ones((2, 3)), "b": wnp.arange(3, dtype=wnp.bfloat16)}, "n": np.arange(4), "step": 3}
    checkpointing.save(tmp_path / "a", tree)
    (file,) = (tmp_path / "a").glob("*.safetensors")
    found = safetensors.load_file(file)
    assert_same(found, {"params": tree["params"], "n": wnp.arange(4)})
    checkpointing.save(tmp_path / "b", tree, max_file_bytes=24)
    files = sorted((tmp_path / "b").glob("*.safetensors"))
    assert len(files) == 3  # n of 32 bytes, w of 24, b
    assert_same(checkpointing.restore(tmp_path / "b", like=tree), tree)
    header = tensor_file.read_header(file.read_bytes(), "")
    assert all(entry.low % entry.dtype.itemsize == 0 for entry in header.entries.values())


# -- several processes -------------------------------------------------------------------------------------------------


def test_processes_save_together(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that are told to be processes: each has the parts on its own devices, and writes no others."""
    here = threading.local()
    devices = np.array([weft.Device(d.id, "cpu", d.id // 4) for d in DEVICES])
    for device in weft.devices():  # all of them are this process's, as long as it is one
        get_placement(device, True)
    mesh = Mesh(devices.reshape(4, 2), ("x", "y"))
    specs = {"w": P("x", "y"), "half": P("x"), "columns": P(None, "y"), "whole": P()}
    monkeypatch.setattr(sharding_device, "process_index", lambda: getattr(here, "index", 0))
    monkeypatch.setattr(
        "weft.sharding.shardings.is_addressable", lambda d: d.process_index == sharding_device.process_index()
    )
    barrier = threading.Barrier(2)
    names: list[str] = []
    failures: list[BaseException] = []

    def wait(name: str) -> None:
        names.append(name)
        barrier.wait(20)

    def array(spec: P) -> ShardedArray:
        sharding = NamedSharding(mesh, spec)
        aval = array_type(VALUES.shape, VALUES.dtype)
        slices = sharding.addressable_devices_indices_map(VALUES.shape)
        parts = [on_device(VALUES[s], aval, weft.devices()[d.id]) for d, s in slices.items()]
        return ShardedArray(type_with_sharding(aval, sharding), sharding, parts)

    def run(process: int, value: int) -> None:
        here.index = process
        try:
            tree = {name: array(spec) for name, spec in specs.items()} | {"own": wnp.ones(3), "step": value}
            saving.write(
                str(tmp_path / "a"),
                saving.snapshot(tree, copy=False),
                overwrite=True,
                max_file_bytes=700,
                processes=Processes(process, 2, wait),
            )
        except BaseException as error:
            failures.append(error)
            barrier.abort()

    for value in range(2):
        threads = [threading.Thread(target=run, args=(process, value)) for process in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        back = checkpointing.restore(tmp_path / "a")
        assert back["step"] == value
        for name in specs:
            assert bits(back[name]) == VALUES.tobytes()
        writers = {
            name: {piece.file.split("-")[2] for piece in e.pieces}
            for name, e in index.read(str(tmp_path / "a")).arrays.items()
        }
        assert writers == {"w": {"0", "1"}, "half": {"0", "1"}, "columns": {"0"}, "whole": {"0"}, "own": {"0"}}
        named = {piece.file for e in index.read(str(tmp_path / "a")).arrays.values() for piece in e.pieces}
        assert {path.name for path in (tmp_path / "a").iterdir()} == named | {"index.json"}  # older files are gone
    assert len(names) == 8 and len(set(names)) == 2


# -- crashes -----------------------------------------------------------------------------------------------------------

KILLED = textwrap.dedent(
    """
    import io, os, signal, sys
    import numpy as np
    from weft import checkpointing

    def tree(value):
        return {"a": np.full(1000, value), "b": [np.full((3, 5), value)], "value": value}

    def check(path, values):
        back = checkpointing.restore(path)
        assert back["value"] in values, back["value"]
        assert (back["a"] == back["value"]).all() and (back["b"][0] == back["value"]).all()

    def is_last(countdown):
        countdown[0] -= 1
        return countdown[0] == 0

    def killing(function, countdown):
        def counted(*arguments, **keywords):
            if is_last(countdown):
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **keywords)
        return counted

    class Half(io.BufferedWriter):
        "A file of which half is written when the process is killed."
        def write(self, data):
            if is_last(countdown):
                super().write(bytes(data)[: len(data) // 2])
                self.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            return super().write(data)
        def writelines(self, lines):
            for line in lines:
                self.write(line)

    def opened(path, mode):
        return Half(io.FileIO(path, mode.replace("b", ""))) if "r" not in mode else io.open(path, mode)

    path = sys.argv[1]
    names = ["fsync", "replace", "unlink", "open", "mkdir", "listdir", "rmdir"]
    for moment in range(1, 100):
        checkpointing.save(path, tree(0), overwrite=True, max_file_bytes=4000)
        child = os.fork()
        if child == 0:
            countdown = [moment]
            for name in names:
                setattr(os, name, killing(getattr(os, name), countdown))
            import builtins
            builtins.open = killing(opened, countdown)
            checkpointing.save(path, tree(moment), overwrite=True, max_file_bytes=4000)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        check(path, (0, moment))
        if not os.WIFSIGNALED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        checkpointing.save(path, tree(-1), overwrite=True, max_file_bytes=4000)
        check(path, (-1,))
        assert len(os.listdir(path)) == 3, os.listdir(path)
    print(moment)
    """
)
FOREVER = textwrap.dedent(
    """
    import sys, threading
    import numpy as np
    from weft import checkpointing

    manager = checkpointing.CheckpointManager(sys.argv[1], max_to_keep=2)
    print("ready", flush=True)
    step = (manager.latest_step() or 0) + 1
    while True:
        manager.save(step, {"a": np.full(300_000, step), "b": np.full(7, step)})
        step += 1
    """
)


def test_a_process_killed_between_any_two_operations_leaves_a_checkpoint(tmp_path: pathlib.Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "a")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 16  # so many moments there are


def test_a_process_killed_at_random_moments(tmp_path: pathlib.Path) -> None:
    rng = random.Random(0)
    latest = 0
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-c", FOREVER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        time.sleep(0.1 + 0.2 * rng.random())
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        with checkpointing.CheckpointManager(tmp_path) as manager:
            step = manager.latest_step()
            assert step is not None and step > latest and len(manager.all_steps()) <= 3
            latest = step
            for step in manager.all_steps():
                back = manager.restore(step)
                assert (back["a"] == step).all() and (back["b"] == step).all()


TRAINING = textwrap.dedent(
    """
    import hashlib, os, signal, sys
    import numpy as np
    import weft
    import weft.numpy as wnp
    from weft import checkpointing, optim

    optimizer = optim.adamw(0.05)

    @weft.jit
    def train(state, batch):
        key, noise = weft.random.split(state["key"])
        def loss(p):
            hidden = wnp.tanh(batch @ p["w"] + 0.1 * weft.random.normal(noise, (8, 16)))
            return wnp.mean((hidden @ p["v"] - 1) ** 2)
        updates, moments = optimizer.update(weft.grad(loss)(state["params"]), state["moments"], state["params"])
        return {"params": optim.apply_updates(state["params"], updates), "moments": moments, "key": key}

    params = {"w": wnp.full((4, 16), 0.1), "v": wnp.full((16,), 0.2, wnp.bfloat16)}
    state = {"params": params, "moments": optimizer.init(params), "key": weft.random.key(0)}
    folder, killed_at = sys.argv[1], int(sys.argv[2])
    data = np.random.default_rng(0).normal(size=(12, 8, 4)).astype(np.float32)
    with checkpointing.CheckpointManager(folder, max_to_keep=2) as manager:
        first = 0
        if manager.latest_step() is not None:
            state, first = manager.restore(like=state), manager.latest_step() + 1
        for step in range(first, 12):
            state = train(state, data[step])
            manager.save(step, state)
            if step == killed_at:
                os.kill(os.getpid(), signal.SIGKILL)
    digest = hashlib.sha256(b"".join(leaf.tobytes() for leaf in weft.tree.leaves(state)))
    print(first > 0, digest.hexdigest())
    """
)


def test_a_training_that_was_killed_ends_with_the_same_bits(tmp_path: pathlib.Path) -> None:
    def run(folder: str, killed_at: int) -> tuple[int, list[str]]:
        command = [sys.executable, "-c", TRAINING, str(tmp_path / folder), str(killed_at)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        return done.returncode, done.stdout.split()

    assert run("killed", 7)[0] == -signal.SIGKILL
    _, (resumed, digest) = run("killed", -1)
    assert resumed == "True" and run("whole", -1) == (0, ["False", digest])


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_save_that_fails_leaves_what_was_there(
    failing: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpointing.save(tmp_path / "a", {"w": wnp.ones(3)})
    before = sorted(path.name for path in (tmp_path / "a").iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(os, failing, lambda *_: (_ for _ in ()).throw(OSError("no room")))
        with pytest.raises(OSError, match="no room"):
            checkpointing.save(tmp_path / "a", {"w": wnp.zeros(4)}, overwrite=True)
        with pytest.raises(OSError, match="no room"):
            checkpointing.save(tmp_path / "b", {"w": wnp.zeros(4)})
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == before and not (tmp_path / "b").exists()
    assert_same(checkpointing.restore(tmp_path / "a"), {"w": wnp.ones(3)})


# -- files of any content ----------------------------------------------------------------------------------------------


def saved_example(path: pathlib.Path) -> None:
    sharded = weft.device_put(np.arange(8, dtype=np.float32), NamedSharding(MESHES[3], P("x")))
    tree = {"w": wnp.ones((2, 2)), "s": sharded, "b": np.array([True, False]), "n": [1, 2.5, None, "text"]}
    checkpointing.save(path, tree, step=3, metadata={"a": [1]})


def with_index(path: pathlib.Path, change: Any) -> None:
    """Change the values of an index."""
    found = json.loads((path / "index.json").read_text())
    change(found)
    (path / "index.json").write_text(json.dumps(found))


def nested_lists(depth: int) -> Any:
    node: Any = None
    for _ in range(depth):
        node = {"list": [node]}
    return node


def piece(found: Any, **changes: Any) -> None:
    found["arrays"]["s"]["pieces"][0].update(changes)


CHANGES: dict[str, Any] = {
    "must have the format": lambda f: f.update(format="other"),
    "must have version 1, got 2": lambda f: f.update(version=2),
    "must have a tree, a dict of values": lambda f: f.pop("tree"),
    "the step must be an integer, got 'x'": lambda f: f.update(step="x"),
    "leaves of the tree must be those of": lambda f: f.update(tree={"dict": []}),
    "leaves of the tree": lambda f: f["tree"]["dict"].append(["again", "w"]),
    "the tree has the invalid node 3": lambda f: f["tree"]["dict"].append(["x", 3]),
    "distinct pairs of key and child, got": lambda f: f["tree"]["dict"].append(["x"]),
    r"distinct pairs of key and child, got \['w'": lambda f: f["tree"]["dict"].append(["w", None]),
    "'n.0' has the invalid value": lambda f: f["values"].update({"n.0": ["int", 3]}),
    "'n.0' has the invalid value .'eval'": lambda f: f["values"].update({"n.0": ["eval", "1"]}),
    "the entry of 'w' must be a dict": lambda f: f["arrays"].update(w=3),
    "'w' has the invalid shape": lambda f: f["arrays"]["w"].update(shape=[-1]),
    r"'w' has the invalid shape \[4611": lambda f: f["arrays"]["w"].update(shape=[1 << 62, 1 << 62]),
    r"'w' has the invalid shape \[0, 2305": lambda f: f["arrays"]["w"].update(shape=[0, 1 << 61]),
    r"'w' has the invalid shape \[0, 0, 0": lambda f: f["arrays"]["w"].update(shape=[0] * 64, dtype="key<fry>"),
    "at most 200 levels": lambda f: f["tree"]["dict"].append(["deep", nested_lists(300)]),
    "'w' has the unknown dtype 'object'": lambda f: f["arrays"]["w"].update(dtype="object"),
    "'w' has the unknown dtype 'key<x>'": lambda f: f["arrays"]["w"].update(dtype="key<x>"),
    "must have the booleans weak_type": lambda f: f["arrays"]["w"].update(weak_type=1),
    "'w' must have a list of pieces": lambda f: f["arrays"]["w"].update(pieces=None),
    "must cover the shape": lambda f: f["arrays"]["s"]["pieces"].pop(),
    "the pieces of 's' must": lambda f: piece(f, index=[[0, 3]]),
    "the pieces of 's'": lambda f: piece(f, index=[[4, 8]]),
    "the pieces of 's' must be dicts": lambda f: f["arrays"]["s"]["pieces"].append(3),
    r"a piece with the invalid index \[0, 4\]": lambda f: piece(f, index=[0, 4]),
    r"a piece with the invalid index \[\]": lambda f: piece(f, index=[]),
    "invalid file name '../x'": lambda f: piece(f, file="../x"),
    "invalid file name '/etc/passwd'": lambda f: piece(f, file="/etc/passwd"),
    "invalid file name '..'": lambda f: piece(f, file=".."),
    "invalid file name ''": lambda f: piece(f, file=""),
    r"invalid file name '\\ud800'": lambda f: piece(f, file="\ud800"),
    "invalid file name 'aaaa": lambda f: piece(f, file="a" * 300),
    "invalid tensor name 3": lambda f: piece(f, tensor=3),
    "the file is missing, which holds 's'": lambda f: piece(f, file="gone"),
    "tensor 'x' must be float32 .* got nothing": lambda f: piece(f, tensor="x"),
    "got float32 of shape": lambda f: piece(f, tensor="w"),
    "must be float16": lambda f: f["arrays"]["w"].update(dtype="float16"),
    "not a regular file": lambda f: piece(f, file="directory"),
}


@pytest.mark.parametrize("words", CHANGES)
def test_a_wrong_index(words: str, tmp_path: pathlib.Path) -> None:
    saved_example(tmp_path / "a")
    (tmp_path / "a" / "directory").mkdir()
    with_index(tmp_path / "a", CHANGES[words])
    with pytest.raises(FileFormatError, match=words) as caught:
        checkpointing.restore(tmp_path / "a")
    assert str(tmp_path / "a") in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "is not valid JSON"),
        (b"[" * 100_000, "is not valid JSON"),
        (b'{"a": 1, "a": 2}', "has the key 'a' twice"),
        (b"\xff", "is not valid JSON: 'utf-8'"),
        (b"[]", "must have the format"),
        (b"1" * 10_000, "is not valid JSON"),
    ],
)
def test_an_index_that_is_no_index(text: bytes, words: str, tmp_path: pathlib.Path) -> None:
    saved_example(tmp_path / "a")
    (tmp_path / "a" / "index.json").write_bytes(text)
    with pytest.raises(FileFormatError, match=words):
        checkpointing.restore(tmp_path / "a")


def test_pieces_that_pass_fill_an_array_once(rng: np.random.Generator) -> None:
    passed = 0
    for _ in range(2000):
        shape = tuple(rng.integers(0, 4, rng.integers(0, 3)).tolist())
        edges = [sorted({0, size, *rng.integers(0, size + 1, rng.integers(0, 2)).tolist()}) for size in shape]
        boxes = list(itertools.product(*(list(itertools.pairwise(edge)) or [(0, 0)] for edge in edges)))
        if rng.integers(2):
            i, j = rng.integers(len(boxes)), rng.integers(len(boxes))
            boxes[i] = tuple(
                (max(low - int(rng.integers(2)), 0), high + int(rng.integers(2))) for low, high in boxes[j]
            )
        count = np.zeros(shape, int)
        for box in boxes:
            count[tuple(slice(*interval) for interval in box)] += 1
        if index._is_grid(boxes, shape):
            passed += 1
            assert (count == 1).all() and all(
                high <= size for box in boxes for (_, high), size in zip(box, shape, strict=True)
            )
    assert passed > 500


def test_truncated_files_and_wrong_bytes(tmp_path: pathlib.Path) -> None:
    saved_example(tmp_path / "a")
    (file,) = (tmp_path / "a").glob("*.safetensors")
    data = file.read_bytes()
    for size in (0, 7, 8, 40, len(data) - 1):
        file.write_bytes(data[:size])
        with pytest.raises(FileFormatError, match=file.name):
            checkpointing.restore(tmp_path / "a")
    entry = tensor_file.read_header(data, "").entries["b"]
    file.write_bytes(data[: entry.low] + b"\x02" + data[entry.low + 1 :])
    with pytest.raises(FileFormatError, match=r"neither true nor false|checksum does not match"):
        checkpointing.restore(tmp_path / "a")


def sweep(path: pathlib.Path, rng: random.Random, count: int) -> int:
    """Change files of a checkpoint at random; how many were refused. All others must be read."""
    saved_example(path)
    like = checkpointing.restore(path)
    originals = {file: file.read_bytes() for file in path.iterdir()}
    refused = 0
    for _ in range(count):
        changed = rng.choice(list(originals))
        changed.write_bytes(mutated(originals[changed], rng))
        try:
            checkpointing.metadata(path)
            checkpointing.restore(path)
            checkpointing.restore(path, like=like)
        except (FileFormatError, CheckpointMismatchError):
            refused += 1
        changed.write_bytes(originals[changed])
    return refused


def test_changed_files_are_read_or_refused(tmp_path: pathlib.Path) -> None:
    assert sweep(tmp_path / "a", random.Random(0), 300) > 150


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_many_changed_files_are_read_or_refused(seed: int, tmp_path: pathlib.Path) -> None:
    assert sweep(tmp_path / "a", random.Random(seed), 3000) > 1500


# -- the manager -------------------------------------------------------------------------------------------------------


def test_steps_of_a_training(tmp_path: pathlib.Path) -> None:
    with checkpointing.CheckpointManager(tmp_path, max_to_keep=2, save_interval_steps=2, keep_period=6) as manager:
        assert manager.latest_step() is None and manager.all_steps() == [] and manager.best_step() is None
        with pytest.raises(FileNotFoundError, match="There is no checkpoint"):
            manager.restore()
        saved = [step for step in range(1, 14) if manager.save(step, {"w": wnp.full(3, step)}, metadata={"at": step})]
        assert saved == [1, 2, 4, 6, 8, 10, 12]  # the first, then as the interval says
        manager.wait_until_finished()
        assert manager.all_steps() == [6, 10, 12] and manager.latest_step() == 12
        assert not manager.save(4, {}) and not manager.should_save(12) and manager.should_save(14)
        assert manager.restore()["w"].tolist() == [12] * 3 and manager.restore(6)["w"].tolist() == [6] * 3
        like = {"w": np.zeros(3, np.int32)}
        assert type(manager.restore(10, like=like)["w"]) is np.ndarray
        assert manager.metadata(10).metadata == {"at": 10} and manager.metadata().step == 12
        with pytest.raises(FileNotFoundError, match=r"no checkpoint of step 7 .* steps \[6, 10, 12\]"):
            manager.restore(7)
        with pytest.raises(ArgumentError, match=r"step 12 already(.|\n)*manager.delete\(12\)"):
            manager.save(12, {}, force=True)
        manager.delete(12)
        assert manager.save(3, {"w": wnp.ones(1)}, force=True)
        with pytest.raises(FileNotFoundError):
            manager.delete(12)
        with pytest.raises(ArgumentTypeError, match="A step must be a nonnegative int"):
            manager.save(wnp.int32(20), {})  # type: ignore[arg-type]
    assert manager.all_steps() == [6, 10]  # 3 was the oldest
    with pytest.raises(ArgumentError, match="closed"):
        manager.save(20, {})
    again = checkpointing.CheckpointManager(tmp_path)
    assert again.latest_step() == 10


def test_the_best_ones_stay(tmp_path: pathlib.Path) -> None:
    for mode, best in (("max", [2, 4]), ("min", [1, 3])):
        with checkpointing.CheckpointManager(
            tmp_path / mode, max_to_keep=2, best_fn=lambda m: m["a"], best_mode=mode, enable_async_checkpointing=False
        ) as manager:
            for step, accuracy in enumerate([1.0, 5.0, 0.5, 6.0, 3.0], 1):
                assert manager.save(step, {"w": 1}, metrics={"a": accuracy}, force=True)
            manager.save(9, {"w": 2})  # without metrics: nobody can say that it is worse
            assert manager.all_steps() == [*best, 9] and manager.best_step() == best[1]
            assert manager.metadata(best[0]).metrics == {"a": [1.0, 5.0, 0.5, 6.0, 3.0][best[0] - 1]}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"max_to_keep": 0}, "max_to_keep must be a positive int"),
        ({"save_interval_steps": 1.5}, "save_interval_steps must"),
        ({"keep_period": True}, "keep_period must"),
        ({"best_fn": "loss"}, "best_fn must be a function"),
        ({"best_mode": "maximum"}, "best_mode must be 'max' or 'min'"),
    ],
)
def test_arguments_of_a_manager(arguments: Any, words: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises((ArgumentError, ArgumentTypeError), match=words):
        checkpointing.CheckpointManager(tmp_path, **arguments)


def test_what_happens_to_arrays_after_save_does_not_matter(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    original = tensor_file.chunks
    monkeypatch.setattr(tensor_file, "chunks", lambda *arguments: (gate.wait(20), original(*arguments))[1])
    expected = np.arange(5000, dtype=np.float32)
    tree = {
        "donated": wnp.asarray(expected) + 0,
        "deleted": wnp.asarray(expected) + 0,
        "sharded": weft.device_put(expected, NamedSharding(MESHES[0], P("x"))),
        "small": wnp.arange(3.0) + 0,
        "numpy": expected.copy(),
        "list": [1, 2],
    }
    with checkpointing.CheckpointManager(tmp_path) as manager:
        assert manager.save(1, tree)
        assert manager.all_steps() == []  # it is being written
        overwrite = weft.jit(lambda x: x * -1 - 5, donate_argnums=0)
        for name in ("donated", "small", "sharded"):
            overwrite(tree[name])
        tree["deleted"].delete()
        tree["numpy"][:] = -1
        tree["list"].append(3)
        for _ in range(10):  # memory that was given back is used again
            wnp.zeros(5000) - 7
        gate.set()
        back = manager.restore()
    for name in ("donated", "deleted", "sharded", "numpy"):
        assert bits(back[name]) == expected.tobytes()
    assert back["small"].tolist() == [0, 1, 2] and back["list"] == [1, 2]


KINDS = ("float32", "bfloat16", "complex64", "complex128", "int8", "bool", "int4", "float8_e4m3fn")


@pytest.mark.parametrize("dtype", KINDS)
def test_snapshots_refer_to_immutable_memory_and_copy_the_rest(dtype: str) -> None:
    with weft.enable_x64(dtype == "complex128"):
        values = wnp.arange(4096).astype(dtype)
        tree = {
            "array": values,
            "sharded": weft.device_put(values, NamedSharding(MESHES[0], P("x"))),
            "numpy": np.arange(4096),
        }
        taken = saving.snapshot(tree, copy=True)
        memory = {
            "array": [values],
            "sharded": [s.data for s in tree["sharded"].addressable_shards if s.replica_id == 0],
        }
        for name, arrays in memory.items():
            parts = [part.stored for part in taken.parts[name]]
            assert len(parts) == len(arrays)
            for part, array in zip(parts, arrays, strict=True):
                assert part is not None and np.shares_memory(part, array._value)
        copied = taken.parts["numpy"][0].stored
        assert copied is not None and not np.shares_memory(copied, tree["numpy"])
        before = {name: [np.array(p.stored) for p in parts] for name, parts in taken.parts.items()}
        change = weft.jit(lambda t: weft.tree.map(lambda a: (a == 0).astype(a.dtype), t), donate_argnums=0)
        state = {"array": values, "sharded": tree["sharded"]}
        for _ in range(3):
            state = change(state)
        tree["numpy"][:] = -1
        for name, parts in taken.parts.items():
            for part, expected in zip(parts, before[name], strict=True):
                assert np.asarray(part.stored).tobytes() == expected.tobytes(), name


def test_errors_of_the_thread_surface(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError("no room")

    calls: list[Any] = [
        lambda m: m.save(2, {"w": 2}),
        lambda m: m.wait_until_finished(),
        lambda m: m.restore(),
        lambda m: m.close(),
        lambda m: m.delete(1),
        lambda m: (m._pending._thread.join(), m.latest_step()),
    ]
    for i, call in enumerate(calls):
        manager = checkpointing.CheckpointManager(tmp_path / str(i))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            manager.save(1, {"w": wnp.ones(2)})
            manager._pending._thread.join()  # type: ignore[union-attr]
        with pytest.raises(OSError, match="no room") as caught:
            call(manager)
        assert "step 1 was written in the background" in caught.value.__notes__[0]
        assert manager.all_steps() == []  # it is raised once
        manager.close()


def test_errors_that_nobody_asks_for_are_logged(tmp_path: pathlib.Path) -> None:
    code = """
        import os, sys
        from weft import checkpointing
        manager = checkpointing.CheckpointManager(sys.argv[1])
        os.fsync = None
        manager.save(5, {"w": 1})
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert "the checkpoint of step 5 was not written\nTraceback" in done.stderr and "TypeError" in done.stderr


def test_where_processes_wait_for_each_other(tmp_path: pathlib.Path) -> None:
    names: list[str] = []
    with checkpointing.CheckpointManager(tmp_path, max_to_keep=1, barrier=names.append) as manager:
        manager.save(1, {"w": 1})
        manager.delete(1)
    assert names == [
        "files of a checkpoint are written",
        "the index of a checkpoint is written",
        "after step 1 all processes see the same checkpoints",
        "all processes have seen the checkpoint of step 1",
        "the checkpoint of step 1 is deleted",
    ]


def test_what_crashed_saves_left_is_removed(tmp_path: pathlib.Path) -> None:
    with checkpointing.CheckpointManager(tmp_path) as manager:
        manager.save(1, {"w": 1})
        manager.wait_until_finished()
        shutil.copytree(tmp_path / "1", tmp_path / "2")
        (tmp_path / "2" / "index.json").unlink()
        (tmp_path / "notes").mkdir()
        (tmp_path / "007").mkdir()
        (tmp_path / "8").write_text("a file")
        assert manager.all_steps() == [1]
        manager.save(3, {"w": 3})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["007", "1", "3", "8", "notes"]


def test_a_forked_process_does_not_wait_for_the_thread(tmp_path: pathlib.Path) -> None:
    code = """
        import os, sys, threading
        from weft import checkpointing
        from weft.checkpointing import tensor_file
        gate = threading.Event()
        original = tensor_file.chunks
        tensor_file.chunks = lambda *a: (gate.wait(20), original(*a))[1]
        manager = checkpointing.CheckpointManager(sys.argv[1])
        manager.save(1, {"w": __import__("numpy").ones(3)})
        child = os.fork()
        if child == 0:
            manager.wait_until_finished()
            os._exit(manager.latest_step() is not None)
        assert os.waitpid(child, 0)[1] == 0
        gate.set()
        # No close: the interpreter ends when the thread has.
    """
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code), str(tmp_path)], cwd=ROOT, check=True, timeout=60
    )
    assert checkpointing.CheckpointManager(tmp_path).all_steps() == [1]


def test_orbax_checkpoints_need_tensorstore(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorstore", None)
    leaf = {"key_metadata": [{"key": "a", "key_type": 2}], "value_metadata": {"value_type": "jax.Array"}}
    (tmp_path / "_METADATA").write_text(json.dumps({"tree_metadata": {"('a',)": leaf}, "use_ocdbt": True}))
    with pytest.raises(ImportError, match="needs the package tensorstore: pip install tensorstore"):
        checkpointing.orbax.restore(tmp_path)


def test_the_layout_of_orbax_needs_no_package(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorstore", None)
    tree = {"a": [wnp.arange(6.0).reshape(2, 3), np.ones((), np.int8)], "b": {"half": wnp.ones(3, wnp.bfloat16)}}
    tree |= {"empty": np.zeros((0, 2)), "count": 3, "text": "words", "flag": np.array([True, False])}
    checkpointing.orbax.save(tmp_path / "step", tree)
    found = checkpointing.orbax.restore(tmp_path / "step", shardings=np.ndarray)
    assert weft.tree.structure(found) == weft.tree.structure(tree)
    for one, other in zip(weft.tree.leaves(tree), weft.tree.leaves(found), strict=True):
        assert np.asarray(one).dtype == np.asarray(other).dtype
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    with pytest.raises(FileExistsError):
        checkpointing.orbax.save(tmp_path / "step", tree)
    chunk = tmp_path / "step" / "default" / "a.0" / "c" / "0" / "0"
    data = chunk.read_bytes()
    for changed, words in ((data[:-1], "must have 24 bytes"), (data[:-1] + b"\1", "checksum"), (None, "no file")):
        chunk.unlink() if changed is None else chunk.write_bytes(changed)
        with pytest.raises(FileFormatError, match=words):
            checkpointing.orbax.restore(tmp_path / "step")

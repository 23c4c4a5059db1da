"""Checkpoints of Orbax are restored bit by bit, and the package `safetensors` reads files of Weft."""

from __future__ import annotations

import json
import pathlib
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest
from safetensors import safe_open

import weft
import weft.numpy as wnp
from weft import checkpointing, optim
from weft.checkpointing import orbax, tensor_file
from weft.errors import CheckpointMismatchError, FileFormatError
from weft.sharding import Mesh, NamedSharding, PartitionSpec as P

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import orbax.checkpoint as ocp


class State(NamedTuple):
    step: Any
    params: Any
    opt_state: Any


DTYPES = [
    "bool",
    "int8",
    "uint8",
    "int16",
    "int32",
    "uint32",
    "float16",
    "bfloat16",
    "float32",
    "complex64",
    "float8_e4m3fn",
    "float8_e5m2",
    "int4",
]


def peer_tree() -> Any:
    rng = np.random.default_rng(0)
    params = {
        "dense": {"kernel": jnp.asarray(rng.normal(size=(16, 8)), jnp.float32), "bias": jnp.ones(8, jnp.bfloat16)}
    }
    return {
        "state": State(3, params, optax.adam(0.1).init(params)),
        "dtypes": {name: jnp.asarray(rng.integers(0, 2, (3, 2))).astype(name) for name in DTYPES},
        "list": [jnp.arange(3), 2, 2.5, True],
        "tuple": (np.arange(4, dtype=np.int64), np.float64(0.1)),
        "scalar": jnp.asarray(7),
        "none": None,
        "no entries": {},
        "key": jax.random.key(3),
        "keys": jax.random.split(jax.random.key(4), 3),
        "text": "words",
    }


FORMATS = {
    "ocdbt": {"use_ocdbt": True},
    "zarr": {"use_ocdbt": False},
    "zarr3": {"use_ocdbt": True, "use_zarr3": True},
}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("orbax")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, options in FORMATS.items():
            ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**options)).save(path / name, peer_tree())
        with ocp.CheckpointManager(path / "manager") as manager:
            manager.save(5, args=ocp.args.StandardSave({"w": jnp.arange(6.0)}))
        with ocp.CheckpointManager(path / "items") as manager:
            items = {"a": ocp.args.StandardSave({"w": 1}), "b": ocp.args.StandardSave({"v": 2})}
            manager.save(6, args=ocp.args.Composite(**items))
    return path


def raw(leaf: Any) -> bytes:
    if isinstance(leaf, weft.Array):
        leaf = leaf._value
    elif isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf).tobytes()


@pytest.mark.parametrize("name", FORMATS)
def test_trees_of_orbax(name: str, checkpoints: pathlib.Path) -> None:
    expected = peer_tree()
    back = orbax.restore(checkpoints / name)
    assert back["none"] is None and back["no entries"] == {} and back["text"] == "words"
    assert back["list"][1:] == [2, 2.5, True] and back["state"]["step"] == 3
    for mine, theirs in [
        (back["state"]["params"], expected["state"].params),
        (back["state"]["opt_state"][0]["mu"], expected["state"].opt_state[0].mu),
        (back["dtypes"], expected["dtypes"]),
        (
            [back[word] for word in ("scalar", "key", "keys")],
            [expected[w] for w in ("scalar", "key", "keys")],
        ),
        (back["tuple"][:1], list(expected["tuple"])[:1]),
    ]:
        pairs = list(zip(weft.tree.leaves(mine), jax.tree.leaves(theirs), strict=True))
        assert pairs
        for x, y in pairs:
            assert x.shape == y.shape and str(x.dtype) == str(y.dtype) and raw(x) == raw(y)
    assert int(weft.random.bits(back["key"])) == int(jax.random.bits(expected["key"]))


def test_into_a_state_of_weft_and_on_a_mesh(checkpoints: pathlib.Path) -> None:
    params = {"dense": {"kernel": wnp.zeros((16, 8)), "bias": wnp.zeros(8, wnp.bfloat16)}}
    like = {"state": State(0, params, optim.adam(0.1).init(params))}
    mesh = Mesh(np.array(weft.devices()).reshape(4, 2), ("x", "y"))
    sharding = NamedSharding(mesh, P("x", "y"))
    shardings = {"state": State(None, {"dense": {"kernel": sharding, "bias": None}}, None)}
    back = orbax.restore(checkpoints / "ocdbt", like, shardings, partial=True)["state"]
    assert back.step == 3 and type(back.opt_state[0]) is type(like["state"].opt_state[0])
    assert back.params["dense"]["kernel"].sharding is sharding
    assert raw(back.params["dense"]["kernel"]) == raw(peer_tree()["state"].params["dense"]["kernel"])
    with pytest.raises(CheckpointMismatchError, match=r"missing: state.extra(.|\n)*orbax.metadata"):
        orbax.restore(checkpoints / "ocdbt", {"state": {"extra": 1}}, partial=True)
    found = orbax.metadata(checkpoints / "ocdbt").tree
    assert found["state"]["params"]["dense"]["kernel"].shape == (16, 8)


def test_directories_of_orbax(checkpoints: pathlib.Path, tmp_path: pathlib.Path) -> None:
    assert orbax.restore(checkpoints / "manager" / "5")["w"].tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(FileNotFoundError, match="there are trees in 'a', 'b'"):
        orbax.restore(checkpoints / "items" / "6")
    assert orbax.restore(checkpoints / "items" / "6" / "b") == {"v": 2}
    with pytest.raises(FileNotFoundError, match="no file _METADATA in it"):
        orbax.restore(checkpoints / "manager")
    with pytest.raises(FileNotFoundError, match="There is no directory"):
        orbax.restore(tmp_path / "nowhere")
    leaf = {"key_metadata": [{"key": "a", "key_type": 2}], "value_metadata": {"value_type": "jax.Array"}}
    for text, words in [
        ("[", "_METADATA cannot be parsed"),
        ("[]", "no tree_metadata"),
        (json.dumps({"tree_metadata": {"a": {}}}), "has the invalid leaf {}"),
        (json.dumps({"tree_metadata": {"a": leaf}, "use_ocdbt": True}), "'a' cannot be read"),
    ]:
        (tmp_path / "_METADATA").write_text(text)
        with pytest.raises(FileFormatError, match=words):
            orbax.restore(tmp_path)


def test_safetensors_reads_our_files(tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng(0)
    tree = {
        "params": {"kernel": wnp.asarray(rng.normal(size=(4, 3)), wnp.float32), "half": np.ones(3, np.float16)},
        "list": [np.arange(4), np.array([True, False]), np.uint8(3)],
        "b": wnp.arange(3, dtype=ml_dtypes.bfloat16),
        "step": 3,
    }
    checkpointing.save(tmp_path / "a", tree)
    (file,) = (tmp_path / "a").glob("*.safetensors")
    with safe_open(file, "numpy") as opened:
        assert sorted(opened.keys()) == ["b", "list.0", "list.1", "list.2", "params.half", "params.kernel"]
        for name, value in [("params.kernel", tree["params"]["kernel"]), ("params.half", tree["params"]["half"])]:
            found = opened.get_tensor(name)
            assert found.dtype == value.dtype and found.tobytes() == raw(value)
        assert opened.get_tensor("list.0").tolist() == [0, 1, 2, 3] and opened.get_tensor("list.2").shape == ()
    with safe_open(file, "flax") as opened:
        assert opened.get_tensor("b").dtype == jnp.bfloat16 and opened.get_tensor("b").tolist() == [0, 1, 2]


def test_every_file_is_a_safetensors_file(tmp_path: pathlib.Path) -> None:
    """Whatever the dtypes, names and shards."""
    mesh = Mesh(np.array(weft.devices()).reshape(8), ("x",))
    tree: dict[str, Any] = {
        name: np.ones((2, 2), kind) for name, kind in {n: weft.numpy.dtype(n) for n in DTYPES}.items()
    }
    tree |= {
        "a.b": np.ones(1),
        "": np.ones(2),
        "__metadata__": np.ones(3),
        "é[0]": np.ones(3),
        "none": np.zeros((0, 2)),
    }
    tree |= {
        "key": weft.random.key(0),
        "c": np.ones(2, np.complex128),
        "s": weft.device_put(wnp.arange(8), NamedSharding(mesh, P("x"))),
    }
    checkpointing.save(tmp_path / "a", tree, max_file_bytes=50)
    files = list((tmp_path / "a").glob("*.safetensors"))
    assert len(files) > 3
    for file in files:
        with safe_open(file, "numpy") as opened:
            assert sorted(opened.keys()) == sorted(tensor_file.read_header(file.read_bytes(), "").entries)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_to_keep": 2},
        {"max_to_keep": 1, "save_interval_steps": 2},
        {"max_to_keep": 2, "keep_period": 4},
        {"max_to_keep": 2, "best_fn": lambda metrics: metrics["a"]},
        {"max_to_keep": 2, "best_fn": lambda metrics: metrics["a"], "best_mode": "min", "keep_period": 3},
        {"best_fn": lambda metrics: metrics["a"], "save_interval_steps": 3},
    ],
    ids=lambda options: ",".join(options) or "none",
)
def test_managers_retain_the_same_steps(options: dict[str, Any], tmp_path: pathlib.Path) -> None:
    steps = [1, 2, 3, 4, 4, 2, 6, 7, 9, 12]
    scores = [0.3, 0.9, 0.1, None, 0.5, 0.8, 0.7, 0.2, 0.6, 0.4]

    def outcome(manager: Any, save: Any) -> list[Any]:
        found: list[Any] = []
        for i, (step, score) in enumerate(zip(steps, scores, strict=True)):
            metrics = None if score is None else {"a": score}
            found.append(
                (manager.should_save(step), bool(save(manager, step, metrics if "best_fn" in options else None)))
            )
            manager.wait_until_finished()
            if i == 6:
                manager.delete(manager.latest_step())
            found.append((list(manager.all_steps()), manager.latest_step(), manager.best_step()))
        return found

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with ocp.CheckpointManager(tmp_path / "theirs", options=ocp.CheckpointManagerOptions(**options)) as manager:
            theirs = outcome(
                manager, lambda m, step, metrics: m.save(step, args=ocp.args.StandardSave({"w": step}), metrics=metrics)
            )
    with checkpointing.CheckpointManager(tmp_path / "ours", **options) as ours:
        assert outcome(ours, lambda m, step, metrics: m.save(step, {"w": step}, metrics=metrics)) == theirs

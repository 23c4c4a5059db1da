"""Checkpoints in Hugging Face's layout: safetensors files, one or several with an index.

Files are mapped, and each array of the tree is filled part by part in the dtype and the sharding that it is to have:
a process reads only the rows of its own devices, and no array exists twice. Pages of a file are given back once its
values have been copied.
"""

from __future__ import annotations

import functools
import json
import math
import mmap
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import ml_dtypes
import numpy as np

import weft
from weft.checkpointing import tensor_file
from weft.errors import CheckpointMismatchError, FileFormatError
from weft.models.config import Config
from weft.models.families import FAMILIES, IGNORED, find_names, read_json
from weft.models.names import Tensor, find_path, read_tensor, write_tensors
from weft.models.parameters import Leaf, build, flat, leaves, shapes
from weft.sharding import NamedSharding, PartitionSpec, SingleDeviceSharding

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
# Names of the first years for the parameters of norms.
_OLD_NORM = re.compile(r"(?<=LayerNorm)\.(gamma|beta)$")
_CHUNK = 1 << 25  # bytes
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")


class Source(Protocol):
    """Tensors by name: their shapes, and arrays whose values are read when they are used."""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of each tensor."""

    def read(self, name: str) -> np.ndarray:
        """Return a tensor, as a view of its file if possible."""

    def release(self, name: str) -> None:
        """Give the memory of a tensor back."""


class Entry(NamedTuple):
    """Tensor in a mapped file."""

    file: str
    data: Any
    entry: tensor_file.Entry


class SafetensorsFolder:
    """Tensors of the safetensors files of a folder.

    Args:
        folder: a folder with `model.safetensors`, with several files and their index, or with one other file.
    """

    def __init__(self, folder: str) -> None:
        self.entries: dict[str, Entry] = {}
        for file in _list_files(folder):
            data = tensor_file.map_file(file)
            for name, entry in tensor_file.read_header(data, file).entries.items():
                self.entries[name] = Entry(file, data, entry)

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of each tensor."""
        return {name: held.entry.shape for name, held in self.entries.items()}

    def read(self, name: str) -> np.ndarray:
        """Return a tensor as a view of its file."""
        held = self.entries[name]
        return tensor_file.read_array(held.data, held.entry, held.file)

    def release(self, name: str) -> None:
        """Give the pages of a tensor back to the system."""
        held = self.entries[name]
        if isinstance(held.data, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            start = held.entry.low // mmap.PAGESIZE * mmap.PAGESIZE
            if held.entry.high > start:
                held.data.madvise(mmap.MADV_DONTNEED, start, held.entry.high - start)


def _list_files(folder: str) -> list[str]:
    index = os.path.join(folder, INDEX)
    if os.path.isfile(index):
        table = read_json(index).get("weight_map")
        if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
            raise FileFormatError("An index of safetensors files must have a weight_map of names.", received=index)
        names = sorted(set(table.values()))
        if outside := [name for name in names if os.path.basename(name) != name]:
            raise FileFormatError("The files of an index must be in its folder.", received=f"{outside[0]!r} in {index}")
        missing = [name for name in names if not os.path.isfile(os.path.join(folder, name))]
        if missing:
            raise FileFormatError("All files of an index must be in its folder.", received=f"no {', '.join(missing)}")
        return [os.path.join(folder, name) for name in names]
    found = sorted(name for name in os.listdir(folder) if name.endswith(".safetensors"))
    if SINGLE in found:
        found = [SINGLE]
    if len(found) == 1:
        return [os.path.join(folder, found[0])]
    if found:
        raise FileFormatError(f"A folder with several safetensors files must have a {INDEX}.", received=folder)
    pickles = sorted(name for name in os.listdir(folder) if name.endswith(_PICKLES))
    if pickles:
        raise FileFormatError(
            "Weights must be safetensors: a pickle runs code when it is read.",
            received=os.path.join(folder, pickles[0]),
            fix='safetensors.torch.save_file(torch.load("pytorch_model.bin", weights_only=True), "model.safetensors")',
        )
    raise FileFormatError(f"A folder of a model must have {SINGLE}, or several with {INDEX}.", received=folder)


# -------------------------------------------------------------------------------------------------------------- loading


class Place(NamedTuple):
    """Where the values of a path are: a tensor of a source, its rows, and whether it is transposed."""

    tensor: str
    start: int
    rows: int | None
    is_transposed: bool


def find_places(config: Config, source: Source, where: str) -> dict[str, Place]:
    """Find the tensor of each parameter; raise one error that lists all that is missing, extra or misshapen."""
    table, prefix = find_names(config), FAMILIES[config.family].prefix
    found, wanted = source.shapes, shapes(config)
    lacks_prefix = needs_prefix(source, prefix)
    places: dict[str, Place] = {}
    misshapen, extra = [], []
    for name, shape in found.items():
        plain = _OLD_NORM.sub(lambda match: ".weight" if match[1] == "gamma" else ".bias", name)
        path = find_path(plain, table) or (find_path(prefix + plain, table) if lacks_prefix else None)
        tensor = read_tensor(name, path, config) if path is not None else None
        pieces = [piece for piece in tensor.pieces if piece.path in wanted] if tensor else []
        if not pieces:
            if not IGNORED.search(name) and not _belongs_to_a_head(path, wanted):
                extra.append(name)
            continue
        for piece in pieces:
            places[piece.path] = Place(name, piece.start, piece.rows, piece.is_transposed)
        expected = _file_shape(pieces, wanted)
        if _squeeze(shape) != _squeeze(expected):
            misshapen.append(f"{name} is {shape}, must be {expected}")
    missing = sorted(set(wanted) - set(places) - set(config.get("optional", ())))
    if missing or extra or misshapen:
        raise CheckpointMismatchError(_describe(missing, extra, misshapen, config), received=where)
    return places


def needs_prefix(source: Source, prefix: str) -> bool:
    """Return whether the tensors of a source lack the prefix of their family, as in files of models without a head."""
    return not any(name.startswith(prefix) for name in source.shapes)


def _belongs_to_a_head(path: str | None, wanted: Mapping[str, tuple[int, ...]]) -> bool:
    """Return whether a tensor is that of a head which the config does not have, or repeats the embeddings."""
    if path is None:
        return False
    first = path.removeprefix("~").partition(".")[0]
    return path == "head.weight" or not any(name.partition(".")[0] == first for name in wanted)


def _file_shape(pieces: Iterable[Any], wanted: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    pieces = list(pieces)
    shape = wanted[pieces[0].path]
    if len(pieces) > 1:
        shape = (sum(wanted[piece.path][0] for piece in pieces), *shape[1:])
    return shape[::-1] if pieces[0].is_transposed else shape


def _squeeze(shape: Iterable[int]) -> tuple[int, ...]:
    """Leave out axes of size 1: a class token is (1, 1, width) in files."""
    return tuple(size for size in shape if size != 1)


def _describe(missing: list[str], extra: list[str], misshapen: list[str], config: Config) -> str:
    lines = [f"The tensors of a checkpoint must be those of its config ({config.family})."]
    for title, names in (("missing", missing), ("extra", extra), ("misshapen", misshapen)):
        if names:
            more = f", and {len(names) - 12} more" if len(names) > 12 else ""
            lines.append(f"{len(names)} {title}: {', '.join(names[:12])}{more}.")
    return " ".join(lines)


def read_part(source: Source, place: Place, shape: tuple[int, ...]) -> np.ndarray:
    """Return a parameter as a view of its tensor."""
    array = source.read(place.tensor)
    if place.is_transposed:
        array = array.T
    if place.rows is not None:
        array = array[place.start : place.start + place.rows]
    return array.reshape(shape)


Shard = Callable[[str, tuple[int, ...]], Any]


def load_params(
    config: Config,
    source: Source,
    where: str,
    dtype: Any = None,
    sharding: Any = None,
    progress: Callable[[int, int], None] | None = None,
    convert: Callable[[tuple[str | int, ...], Any], Any] | None = None,
) -> tuple[dict[str, Any], Config]:
    """Load the tree of a model from a source of tensors.

    Args:
        config: the description of the model.
        source: the tensors.
        where: the name of the source in errors.
        dtype: the dtype of floating-point parameters; by default that of the files.
        sharding: None, a sharding for all arrays, or a function from the dotted name and shape of an array to one.
        progress: a function that is called with the bytes that are loaded and those of all.
        convert: a function from the keys of an array and the array to what the tree has in its place.

    Returns:
        The tree of parameters, and the description without optional parameters that the source does not have.
    """
    places = find_places(config, source, where)
    absent = [path for path in config.get("optional", ()) if path not in places]
    config = replace(config, extras={path: shape for path, shape in config.extras.items() if path not in absent})
    wanted = shapes(config)
    everything = leaves(config)
    total, done = sum(int(np.prod(leaf.shape)) for leaf in everything), 0

    def value(leaf: Leaf) -> Any:
        nonlocal done
        kind = source.read(places[leaf.parts[0][1]].tensor).dtype
        if dtype is not None and is_float(kind):
            kind = np.dtype(dtype)
        read = functools.partial(_fill, leaf, kind, places, source, wanted)
        array = place_array(leaf.shape, kind, choose_sharding(sharding, leaf), read)
        done += int(np.prod(leaf.shape))
        if progress is not None:
            progress(done, total)
        return array if convert is None else convert(leaf.keys, array)

    lacks_prefix = needs_prefix(source, FAMILIES[config.family].prefix)
    return build(config, value), replace(config, options={**config.options, "lacks_prefix": lacks_prefix})


def place_array(shape: tuple[int, ...], dtype: np.dtype[Any], where: Any, read: Callable[[Any], np.ndarray]) -> Any:
    """Return an array with this sharding whose parts are read by index.

    On one CPU the memory that was read into becomes that of the array; NumPy exports no short floats this way.
    """
    device = next(iter(where.device_set))
    is_one = len(where.device_set) == 1 and device.platform == "cpu" and device == weft.devices()[0]
    if is_one and dtype in (np.float32, np.float16) and math.prod(shape) > 1:
        return weft.dlpack.from_dlpack(read(tuple(slice(None) for _ in shape)))
    return weft.make_array_from_callback(shape, where, read, dtype=dtype)


def choose_sharding(sharding: Any, leaf: Leaf) -> Any:
    """Return the sharding of one array."""
    if sharding is None:
        return SingleDeviceSharding(weft.devices()[0])
    return sharding(leaf.name, leaf.shape) if not hasattr(sharding, "device_set") else sharding


def _fill(
    leaf: Leaf,
    kind: np.dtype[Any],
    places: Mapping[str, Place],
    source: Source,
    wanted: Mapping[str, tuple[int, ...]],
    index: tuple[slice, ...],
) -> np.ndarray:
    """Copy the part of an array that one device holds from the files."""
    ranges = [range(*one.indices(size)) for one, size in zip(index, leaf.shape, strict=True)]
    block = np.empty([len(r) for r in ranges], kind)
    for at, path in leaf.parts:
        if all(number in r for number, r in zip(at, ranges, strict=False)):
            own: tuple[Any, ...] = tuple(number - r.start for number, r in zip(at, ranges, strict=False))
            part = read_part(source, places[path], wanted[path])
            _copy(
                part[tuple(slice(r.start, r.stop) for r in ranges[len(at) :])],
                block[(*own, ...)],
                source,
                places[path].tensor,
            )
    return block


def _copy(values: np.ndarray, target: np.ndarray, source: Source, name: str) -> None:
    """Copy values of a tensor, and give its pages back every few megabytes: mapped pages count as memory in use."""
    step = max(1, _CHUNK // max(1, values[:1].nbytes)) if values.ndim else 1
    if values.nbytes <= _CHUNK or not target.ndim:
        target[...] = values
        source.release(name)
        return
    for at in range(0, len(values), step):
        target[at : at + step] = values[at : at + step]
        source.release(name)


def is_float(dtype: Any) -> bool:
    """Return whether a dtype is one of floating-point numbers, short ones included."""
    kind = np.dtype(dtype)
    return kind.kind == "f" or kind.name.startswith(("bfloat", "float"))


def shard(mesh: Any, data: str | None = "data", model: str | None = "model") -> Shard:
    """Return rules that place the parameters of a model on a mesh: FSDP along one axis, tensor parallelism on another.

    Projections into heads and hidden units are split by rows along `model`, those back by columns; the other axis of
    each matrix, and tables of tokens, along `data`. Axes that a mesh does not divide stay whole.

    Args:
        mesh: the mesh.
        data: the axis that batches are split along, or None.
        model: the axis that heads and hidden units are split along, or None.

    Returns:
        A function from the dotted name and the shape of an array to its sharding, for `load(sharding=...)`.

    >>> import weft
    >>> from weft import models
    >>> rules = models.shard(weft.make_mesh((1, 1), ("data", "model")))
    >>> rules("layers.0.0.attention.query.weight", (2, 8, 8)).spec
    P(None, 'model', 'data')
    """

    def rule(name: str, shape: tuple[int, ...]) -> Any:
        parts = name.split(".")
        spec: list[str | None] = [None] * len(shape)
        if len(shape) >= 2 and parts[-1] != "bias":
            rows, columns = (model, data)
            if {"output", "down", "tokens"} & set(parts):
                rows, columns = (data, model)
            if "experts" in parts:
                rows, columns = columns, rows  # experts are stored (in, out)
            spec[-2], spec[-1] = rows, columns
        sizes = dict(mesh.shape)
        divided = [
            axis if axis in sizes and size % sizes[axis] == 0 else None for axis, size in zip(spec, shape, strict=True)
        ]
        return NamedSharding(mesh, PartitionSpec(*divided))

    return rule


# --------------------------------------------------------------------------------------------------------------- saving


def save_params(params: Mapping[str, Any], config: Config, folder: str, largest: int) -> None:
    """Write the parameters of a model as safetensors files under the names of its family, with an index if several.

    Args:
        params: the tree of the model.
        config: its description.
        folder: an existing folder.
        largest: the most bytes of one file.
    """
    family = FAMILIES[config.family]
    values = flat(params, config)
    kinds = config.raw.get("architectures") or [""]
    lacks_prefix = bool(config.get("lacks_prefix", kinds[0].endswith("Model")))
    files: list[list[Tensor]] = [[]]
    size = 0
    for tensor in write_tensors(values, find_names(config), config):
        own = sum(values[piece.path]().nbytes for piece in tensor.pieces)
        if files[-1] and size + own > largest:
            files.append([])
            size = 0
        files[-1].append(tensor)
        size += own
    table = {}
    for number, tensors in enumerate(files):
        name = SINGLE if len(files) == 1 else f"model-{number + 1:05}-of-{len(files):05}.safetensors"
        arrays = []
        for tensor in tensors:
            own_name = tensor.name.removeprefix(family.prefix) if lacks_prefix else tensor.name
            arrays.append((own_name, _join(tensor, values, config)))
            table[own_name] = name
        with tensor_file.replacing(os.path.join(folder, name)) as file:
            file.writelines(tensor_file.chunks(arrays, {"format": "pt"}))
    if len(files) > 1:
        total = sum(values[path]().nbytes for path in values)
        with open(os.path.join(folder, INDEX), "w", encoding="utf-8") as index:
            json.dump({"metadata": {"total_size": total}, "weight_map": table}, index, indent=2)


def _join(tensor: Tensor, values: Mapping[str, Callable[[], np.ndarray]], config: Config) -> np.ndarray:
    """Return a tensor as files have it, from the parameters that are its pieces."""
    parts = [values[piece.path]() for piece in tensor.pieces]
    array = parts[0] if len(parts) == 1 else np.concatenate(parts)
    array = array.T if tensor.pieces[0].is_transposed else array
    return array.reshape(_outer_shape(tensor.name, array.shape))


def _outer_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a tensor in files, where class tokens and positions of images have axes of size 1."""
    if name.endswith(("cls_token", "probe")):
        return (1, 1, *shape)
    return (1, *shape) if name.endswith("position_embeddings") else shape


DTYPE_NAMES = {
    np.dtype(np.float32): "float32",
    np.dtype(np.float16): "float16",
    np.dtype(ml_dtypes.bfloat16): "bfloat16",
}

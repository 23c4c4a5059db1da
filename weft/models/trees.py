"""Trees of other libraries (linen, Haiku, Keras) from Hugging Face's files, by a table of names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

import weft
from weft.errors import ArgumentError, CheckpointMismatchError
from weft.models.files import SafetensorsFolder, is_float
from weft.models.names import find_path


def _leaves(node: Any, keys: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping):
        for key, child in node.items():
            yield from _leaves(child, (*keys, str(key)))
    else:
        yield ".".join(keys), node


def load_tree(folder: str | os.PathLike[str], target: Any, table: Mapping[str, str], *, dtype: Any = None) -> Any:
    """Fill a tree of arrays from safetensors files: variables of linen or Haiku, or weights of Keras by path.

    Args:
        folder: a folder with safetensors files.
        target: nested dicts of arrays, or of `weft.ShapeDtypeStruct`, that say which arrays there are. For a Keras
            model `{weight.path: weight.value for weight in model.weights}`.
        table: patterns of names in the files, and the dotted path of each in the tree. `*` stands for a number. `~`
            before a path reverses the axes of a matrix, and moves those of a convolution from (out, in, height, width)
            to (height, width, in, out). A path without a tensor's ending takes over that of the name.
        dtype: the dtype of floating-point arrays; by default that of the target.

    Returns:
        A tree like `target`.

    >>> import tempfile, weft, weft.numpy as wnp
    >>> from weft import models
    >>> from weft.modules import safetensors
    >>> folder = tempfile.mkdtemp()
    >>> safetensors.save_file({"fc": {"weight": wnp.ones((2, 3)), "bias": wnp.zeros(2)}}, folder + "/model.safetensors")
    >>> target = {"params": {"Dense_0": {"kernel": wnp.zeros((3, 2)), "bias": wnp.zeros(2)}}}
    >>> table = {"fc.weight": "~params.Dense_0.kernel", "fc.bias": "params.Dense_0.bias"}
    >>> models.load_tree(folder, target, table)["params"]["Dense_0"]["kernel"].shape
    (3, 2)
    """
    source = SafetensorsFolder(os.fspath(folder))
    wanted = dict(_leaves(target, ()))
    places: dict[str, tuple[str, bool]] = {}
    extra, misshapen = [], []
    for name, shape in source.shapes.items():
        marked = find_path(name, table)
        path = marked.removeprefix("~") if marked else None
        if marked is None or path not in wanted:
            extra.append(name)
            continue
        places[path] = name, marked.startswith("~")
        size = tuple(shape[i] for i in _axes(len(shape))) if marked.startswith("~") else tuple(shape)
        if size != tuple(wanted[path].shape):
            misshapen.append(f"{name} is {size} as {path}, must be {tuple(wanted[path].shape)}")
    missing = sorted(set(wanted) - set(places))
    if missing or extra or misshapen:
        parts = [("missing", missing), ("extra", extra), ("misshapen", misshapen)]
        text = " ".join(f"{len(names)} {title}: {', '.join(names[:12])}." for title, names in parts if names)
        what = f"The tensors of a checkpoint must be those of the tree. {text}"
        raise CheckpointMismatchError(what, received=os.fspath(folder))

    def visit(node: Any, keys: tuple[str, ...]) -> Any:
        if isinstance(node, Mapping):
            return {key: visit(child, (*keys, str(key))) for key, child in node.items()}
        name, is_moved = places[".".join(keys)]
        array = source.read(name)
        array = array.transpose(_axes(array.ndim)) if is_moved else array
        kind = node.dtype if dtype is None or not is_float(node.dtype) else np.dtype(dtype)
        found = weft.numpy.asarray(np.ascontiguousarray(array).astype(kind, copy=False))
        source.release(name)
        return found

    return visit(target, ())


def _axes(count: int) -> tuple[int, ...]:
    """Return the order of axes that turns (out, in, ...) into (..., in, out)."""
    if count < 2:
        raise ArgumentError("A path with ~ must be that of a matrix or a convolution.", received=f"{count} axes")
    return (*range(2, count), 1, 0)

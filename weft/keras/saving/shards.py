"""Weights in several files, with a list of what is where: `name.weights.json` and `name_00000.weights.h5`, ..."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from weft.checkpointing import tensor_file
from weft.errors import ArgumentError, FileFormatError
from weft.keras.saving import limits, weights
from weft.keras.saving.weights import Weights

SHARDED, SHARD = ".weights.json", ".weights.h5"


def write_shards(found: Weights, names: Mapping[str, str], file: str, most: float) -> None:
    """Write weights to files of at most `most` gigabytes, and then their index.

    Args:
        found: the weights.
        names: of the objects that they belong to.
        file: the list.
        most: gigabytes; an array is in one file.
    """
    if not most > 0:
        raise ArgumentError(
            "max_shard_size must be a positive number of gigabytes.", received=f"max_shard_size={most!r}"
        )
    shards: list[Weights] = [{}]
    filled, total = 0, 0
    for path, name, array in ((path, name, a) for path, arrays in found.items() for name, a in arrays.items()):
        total += array.nbytes
        if array.nbytes > most * 1e9:
            raise ArgumentError(
                f"Each array must fit into one file; one of {path or 'the model'} has {array.nbytes / 1e9:.3g} GB.",
                received=f"max_shard_size={most}",
                fix="a larger max_shard_size",
            )
        if shards[-1] and filled + array.nbytes > most * 1e9:
            shards.append({})
            filled = 0
        shards[-1].setdefault(path, {})[name] = array
        filled += array.nbytes
    stem = file.removesuffix(SHARDED)
    where: dict[str, list[str]] = {}
    for i, shard in enumerate(shards):
        own = f"{stem}_{i:05d}{SHARD}"
        with tensor_file.replacing(own) as out:
            out.write(weights.to_hdf5(shard, names))
        for path in shard:
            where.setdefault(f"/{path}/vars" if path else "/vars", []).append(os.path.basename(own))
    # The list comes last: it names only what is there.
    with tensor_file.replacing(file) as out:
        out.write(json.dumps({"metadata": {"total_size": total}, "weight_map": where}, indent=4).encode())


def read_shards(file: str) -> Weights:
    """Read the weights from the files that an index names.

    Args:
        file: the list; files are beside it.
    """
    limits.check_size(os.path.getsize(file), file, limits.MOST_TEXT)
    try:
        listed = json.loads(tensor_file.content(file))
        files = sorted({name for names in listed["weight_map"].values() for name in _check_names(names)})
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(f"{file} must be a list of files with weights: {type(error).__name__}.") from None
    if len(files) > limits.MOST_MEMBERS:
        raise FileFormatError(f"{file} must name at most {limits.MOST_MEMBERS} files; got {len(files)}.")
    found: Weights = {}
    for name in files:
        # A list names files beside it, and no others.
        if os.path.basename(name) != name or not name.endswith(SHARD):
            raise FileFormatError(f"{file} names a file that is not beside it.", received=repr(name))
        shard = os.path.join(os.path.dirname(file), name)
        if not os.path.isfile(shard):
            raise FileFormatError(f"{file} names {name}, which is not beside it.")
        for path, arrays in weights.from_bytes(tensor_file.content(shard), shard, shard).items():
            found.setdefault(path, {}).update(arrays)
    return found


def _check_names(names: Any) -> list[str]:
    names = [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise TypeError("names of files must be strings")
    return names

"""Names of tensors in files: a table for each family, read in both directions.

A table maps the name of a module in Hugging Face's files to the path of the same part here. `*` stands for the number
of a layer or an expert, and the ending (`weight`, `bias`) follows unless both names are those of a tensor. A path may
have the form

- `layers.*.attention.query+key+value`: the tensor holds the rows of three parts;
- `~path`: the tensor is the transpose of the part (matrices (in, out) of GPT-2).

Reading matches a name with the patterns of a table, writing fills them in, so that a model is saved under the names
that it was loaded from.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from weft.models.config import Config
from weft.models.parameters import shapes

ENDINGS = ("weight", "bias")


class Piece(NamedTuple):
    """Part of a tensor in a file: the path that it is here, its rows, and whether it is transposed."""

    path: str
    start: int
    rows: int | None
    is_transposed: bool


class Tensor(NamedTuple):
    """Tensor of a file: its name and its pieces, in the order of their rows."""

    name: str
    pieces: tuple[Piece, ...]


@functools.cache
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile("^" + re.escape(name).replace(r"\*", r"(\d+)") + "$")


def _fill(name: str, numbers: Iterable[str]) -> str:
    for number in numbers:
        name = name.replace("*", number, 1)
    return name


def find_path(name: str, table: Mapping[str, str]) -> str | None:
    """Return the path of a tensor, with the marks of the table.

    Args:
        name: the name of the tensor in a file.
        table: the names of the family.

    Returns:
        The path, or None if the table has none.
    """
    stem, _, ending = name.rpartition(".")
    for own, path in table.items():
        if match := _pattern(own).match(name):
            return _fill(path, match.groups())
        if ending in ENDINGS and (match := _pattern(own).match(stem)):
            return f"{_fill(path, match.groups())}.{ending}"
    return None


def read_tensor(name: str, path: str, config: Config) -> Tensor:
    """Return the pieces of a tensor.

    Args:
        name: the name of the tensor in a file.
        path: its path, with the marks of the table.
        config: the description of the model, which says how many rows each piece has.

    Returns:
        A `Tensor`.
    """
    is_transposed = path.startswith("~")
    path = path.removeprefix("~")
    if "+" not in path:
        return Tensor(name, (Piece(path, 0, None, is_transposed),))
    sizes = shapes_once(config)
    parts = path.split(".")
    at = next(i for i, part in enumerate(parts) if "+" in part)
    pieces, start = [], 0
    for option in parts[at].split("+"):
        own = ".".join([*parts[:at], option, *parts[at + 1 :]])
        rows = sizes[own][0] if own in sizes else 0
        pieces.append(Piece(own, start, rows, is_transposed))
        start += rows
    return Tensor(name, tuple(pieces))


def write_tensors(paths: Iterable[str], table: Mapping[str, str], config: Config) -> list[Tensor]:
    """Return the tensors under which paths are saved.

    Args:
        paths: the paths of a model.
        table: the names of its family.
        config: its description.

    Returns:
        A list of `Tensor`, each once.
    """
    wanted = list(paths)
    found: dict[str, Tensor] = {}
    written: set[str] = set()
    for path in wanted:
        if path in written:
            continue
        for own, target in table.items():
            name = _match_path(path, own, target)
            if name is None:
                continue
            marked = find_path(name, {own: target})
            assert marked is not None  # the name was made from this row
            tensor = read_tensor(name, marked, config)
            if all(piece.path in wanted for piece in tensor.pieces):
                found[name] = tensor
                written |= {piece.path for piece in tensor.pieces}
                break
    return list(found.values())


def _match_path(path: str, own: str, target: str) -> str | None:
    """Return the name of the tensor with a path if this row of a table has it."""
    target = target.removeprefix("~")
    options = [target]
    if "+" in target:
        head, tail = target.split("+")[0].rpartition(".")[0], target.split("+")[-1].partition(".")[2]
        names = target.removeprefix(head + ".").removesuffix("." + tail if tail else "").split("+")
        options = [".".join(filter(None, (head, name, tail))) for name in names]
    for option in options:
        if match := _pattern(option).match(path):
            return _fill(own, match.groups())
        stem, _, ending = path.rpartition(".")
        if ending in ENDINGS and (match := _pattern(option).match(stem)):
            return f"{_fill(own, match.groups())}.{ending}"
    return None


_shapes: dict[int, tuple[Config, dict[str, tuple[int, ...]]]] = {}


def shapes_once(config: Config) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a model, computed once for the config that was used last."""
    held = _shapes.get(0)
    if held is None or held[0] is not config:
        held = _shapes[0] = (config, shapes(config))
    return held[1]

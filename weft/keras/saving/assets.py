"""Files that layers write beside their variables, such as vocabularies."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

from weft.errors import FileFormatError
from weft.keras.saving.paths import saved_objects


def collect(model: Any) -> dict[str, bytes]:
    """Return what layers write with `save_assets(folder)`, by path.

    Args:
        model: the model.
    """
    found: dict[str, bytes] = {}
    for path, value in saved_objects(model).items():
        if hasattr(value, "save_assets"):
            with tempfile.TemporaryDirectory() as folder:
                value.save_assets(folder)
                for file in sorted(pathlib.Path(folder).rglob("*")):
                    if file.is_file():
                        found[f"{path}/{file.relative_to(folder).as_posix()}"] = file.read_bytes()
    return found


def load(model: Any, names: Iterable[str], read: Callable[[str], bytes], source: str) -> None:
    """Give layers their files, by `load_assets(folder)`.

    Args:
        model: the model.
        names: the paths of the files that there are.
        read: a function of a path that returns the bytes of the file.
        source: where they come from, for errors.
    """
    listed = [name for name in names if not name.endswith("/")]
    for path, value in saved_objects(model).items():
        own = [name for name in listed if name.startswith(f"{path}/")]
        if not own or not hasattr(value, "load_assets"):
            continue
        with tempfile.TemporaryDirectory() as folder:
            for name in own:
                inside = pathlib.PurePosixPath(name[len(path) + 1 :])
                if ".." in inside.parts or inside.is_absolute() or "\\" in name:
                    raise FileFormatError(f"{source}: {name} is outside of the archive.")
                target = pathlib.Path(folder, *inside.parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(read(name))
            value.load_assets(folder)

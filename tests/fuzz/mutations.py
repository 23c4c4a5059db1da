"""Random changes of files: bits, lengths, members, sizes and values of JSON."""

from __future__ import annotations

import copy
import io
import json
import pathlib
import random
import zipfile
from typing import Any

_SIZES = (0, 1, 2**31 - 1, 2**31, 2**36, 2**63 - 1, 2**64 - 1)
_VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 7, 2**31, 2**40, 2**63, -(2**63), 0.5, -1e308, 1e308, float("nan")),
    *("", "x", "float32", "relu", "Dense", "arange", "../../x", "\0", [], {}, [[]], [None], {"class_name": "Dense"}),
    {"class_name": "function", "config": "system", "module": "os"},
    {"module": "keras.ops", "class_name": "arange", "config": {"stop": 10**9}},
    {"class_name": "__numpy__", "config": {"value": [1, 2], "dtype": "float32"}},
    {"class_name": "__lambda__", "config": {"value": {"code": "AAAA", "defaults": None, "closure": None}}},
)


def change_bytes(data: bytes, rng: random.Random) -> bytes:
    """Flip bits, overwrite, cut out or repeat some bytes, write a large size, or cut the end off."""
    content = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        if not content:
            break
        at = rng.randrange(len(content))
        match rng.randrange(7):
            case 0 | 1:
                content[at] ^= 1 << rng.randrange(8)
            case 2:
                content[at] = rng.randrange(256)
            case 3:
                del content[at : at + rng.randrange(1, 50)]
            case 4:
                content[at:at] = content[at : at + rng.randrange(1, 50)]
            case 5:
                width = rng.choice((2, 4, 8))
                content[at : at + width] = (rng.choice(_SIZES) & ((1 << 8 * width) - 1)).to_bytes(width, "little")
            case _:
                content[at : at + 4] = rng.randbytes(4)
    return bytes(content[: rng.randrange(len(content) + 1)] if rng.random() < 0.15 else content)


def change_json(text: bytes, rng: random.Random) -> bytes:
    """Replace, remove, exchange or nest values of a text of JSON."""
    try:
        root = [json.loads(text)]
    except ValueError:
        return change_bytes(text, rng)
    for _ in range(rng.choice((1, 1, 2, 4))):
        found = list(_containers(root))
        where = rng.choice(found)
        key = rng.choice(list(where) if isinstance(where, dict) else range(len(where)))
        other = rng.choice(found)
        other_key = rng.choice(list(other) if isinstance(other, dict) else range(len(other)))
        match rng.randrange(8):
            case 0 | 1 | 2:
                where[key] = rng.choice(_VALUES)
            case 3 if isinstance(where, dict):
                del where[key]
            case 4:
                try:
                    where[key] = copy.deepcopy(other[other_key])
                except RecursionError:
                    where[key] = []
            case 5 if type(where[key]) in (int, float):
                where[key] = where[key] * rng.choice((-1, 2, 10, 2**20)) + rng.choice((-1, 0, 1))
            case 6:
                nested: Any = where[key]
                for _ in range(rng.choice((1, 3, 2000))):
                    nested = [nested]
                where[key] = nested
            case _ if isinstance(where, dict):
                where[rng.choice((str(other_key), "x", "class_name", "config", "shape"))] = where.pop(key)
        if not any(_containers(root)):
            break
    try:
        return json.dumps(root[0]).encode()
    except RecursionError:
        return b"[" * 100_000


def _containers(root: Any) -> Any:
    waiting = [root]
    while waiting:
        item = waiting.pop()
        if isinstance(item, (dict, list)) and item:
            yield item
            waiting.extend(item.values() if isinstance(item, dict) else item)


def change_archive(data: bytes, rng: random.Random) -> bytes:
    """Write an archive again with members that are changed, exchanged, renamed, missing, doubled or compressed."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    names = list(members)
    name, other = rng.choice(names), rng.choice(names)
    match rng.randrange(6):
        case 0:
            members[name], members[other] = members[other], members[name]
        case 1:
            del members[name]
        case 2:
            members[rng.choice(("x", "../x", "config.json", "model.weights.h5", "assets/x"))] = members.pop(name)
        case _:
            changed = [each for each in names if each.endswith(".json")] or names
            chosen = rng.choice(changed if rng.random() < 0.8 else names)
            change = change_json if chosen.endswith(".json") else change_bytes
            members[chosen] = change(members[chosen], rng)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for member, content in members.items():
            archive.writestr(member, content)
        if rng.random() < 0.05 and members:
            archive.writestr(next(iter(members)) + "2", bytes(10**6))
    return out.getvalue()


def change_header(data: bytes, rng: random.Random) -> bytes:
    """Change the JSON of a file that begins with its length in eight bytes, as safetensors does."""
    length = int.from_bytes(data[:8], "little")
    header = change_json(data[8 : 8 + length], rng)
    return len(header).to_bytes(8, "little") + header + data[8 + length :]


def change_hdf5(data: bytes, rng: random.Random) -> bytes:
    """Change an HDF5 file through h5py: configs in attributes, and shapes, kinds and names of data sets."""
    import h5py

    content = io.BytesIO(data)
    with h5py.File(content, "a") as file:
        groups: list[Any] = [file]
        arrays: list[Any] = []
        file.visititems(lambda _, item: (arrays if isinstance(item, h5py.Dataset) else groups).append(item))
        configs = [name for name in file.attrs if name.endswith("_config")]
        if configs and rng.random() < 0.6:
            name = rng.choice(configs)
            text = file.attrs[name]
            file.attrs[name] = change_json(text if isinstance(text, bytes) else text.encode(), rng)[:60_000]
            return _closed(file, content)
        victim = rng.choice(arrays)
        name, parent = victim.name, victim.parent
        match rng.randrange(7):
            case 0:
                del file[name]
            case 1:
                del file[name]
                size = rng.choice((1, 2**20, 2**36, 2**45))
                packed = {"chunks": (min(size, 1 << 20),), "compression": "gzip"}
                options: dict[str, Any] = rng.choice(({}, packed))
                file.create_dataset(name, shape=(size,), dtype="f4", **options)
            case 2:
                del file[name]
                file[name] = rng.choice((h5py.SoftLink("/x"), h5py.ExternalLink("x", "/x"), h5py.SoftLink(parent.name)))
            case 3:
                del file[name]
                file[name] = rng.choice((["text"], 3.5, [[1]], b"bytes", [1 + 2j]))
            case 4:
                target = rng.choice(arrays)
                value, second = victim[()], target[()]
                if (other := target.name) != name:
                    del file[name], file[other]
                    file[name], file[other] = second, value
            case 5:
                group = rng.choice(groups)
                if group.attrs:
                    group.attrs[rng.choice(list(group.attrs))] = rng.choice((3, b"x", [b"x", b"y"], "x" * 1000))
            case _:
                group = rng.choice(groups)
                if group.name != "/":
                    del file[group.name]
        return _closed(file, content)


def _closed(file: Any, content: io.BytesIO) -> bytes:
    file.flush()
    file.close()
    return content.getvalue()


def change_folder(folder: pathlib.Path, rng: random.Random) -> None:
    """Change a folder in place: one of its files, or which files there are."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    file, other = rng.choice(files), rng.choice(files)
    texts = [path for path in files if path.suffix == ".json" or path.name.startswith(("_", "process_"))]
    match rng.randrange(8):
        case 0:
            file.unlink()
        case 1:
            one, two = file.read_bytes(), other.read_bytes()
            file.write_bytes(two)
            other.write_bytes(one)
        case 2 | 3 | 4 if texts:
            chosen = rng.choice(texts)
            chosen.write_bytes(change_json(chosen.read_bytes(), rng))
        case 5 if file.suffix == ".safetensors":
            file.write_bytes(change_header(file.read_bytes(), rng))
        case _:
            file.write_bytes(change_bytes(file.read_bytes(), rng))

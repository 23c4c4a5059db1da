"""File format of an export: a line, a header of JSON, the text of the jaxpr, then blocks of constants.

    weft export 1 <digest of all that follows>
    {"name": "f", "symbols": {"b": [1, null]}, "in": ..., "out": ..., "blocks": [...], ...}
    { lambda ; a:f32[b,64] ... }

Text comes first, so that a file can be read by people. The file of an export with derivatives has that of each in a
block. Reading checks the digest, limits and every type, and raises `FileFormatError` for anything else than a file that
`write` wrote; it never runs code.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from weft.base.dtypes import float0
from weft.base.errors import FileFormatError, InternalError
from weft.export import trees
from weft.export.meshes import MOST_DEVICES, stand_ins
from weft.export.objects import Decoder, Encoder, check_exportable, size_from_text
from weft.indexing.dimension import Dimension
from weft.indexing.expression import Expression, Symbol
from weft.indexing.guards import Assumption
from weft.ir.jaxpr import Jaxpr, subjaxprs
from weft.ir.parser import parse
from weft.ir.primitive import lookup
from weft.ir.printer import to_text
from weft.ir.registry import is_builtin
from weft.ir.types import ArrayType
from weft.ir.verifier import verify
from weft.primitives.control.callback import Callback
from weft.sharding.device import Device
from weft.sharding.shardings import NamedSharding

VERSION = 1
# By the name of a primitive: the version of its parameters, if their meaning has changed since version 1.
PRIMITIVE_VERSIONS: dict[str, int] = {}
ALIGNMENT = 64
# Limits for the header and for nested brackets, far beyond any real export.
MOST_HEADER_BYTES = 1 << 27
DEEPEST = 200
MOST_SYMBOLS = 1000
_MAGIC = re.compile(rb"weft export (\d{1,6}) ([0-9a-f]{64})\n")


def get_version(name: str) -> int:
    """Return the version of the parameters of the primitive called `name`."""
    return PRIMITIVE_VERSIONS.get(name, 1)


class Content(NamedTuple):
    """Contents of the file of an export."""

    name: str
    jaxpr: Jaxpr
    in_tree: Any
    in_avals: tuple[Any, ...]
    out_tree: Any
    out_avals: tuple[Any, ...]
    argument_names: tuple[str, ...]
    platforms: tuple[str, ...]
    settings: dict[str, Any]
    vjp: bytes | None
    assumptions: tuple[Assumption, ...] = ()
    devices: tuple[Device, ...] = ()
    in_shardings: tuple[Any, ...] = ()
    out_shardings: tuple[Any, ...] = ()


def write(content: Content) -> bytes:
    """Write the file of an export."""
    jaxpr = content.jaxpr
    check_exportable(jaxpr, content.name, content.devices)
    table: list[Any] = []
    text = to_text(jaxpr, full=True, table=table).encode()
    blocks: list[np.ndarray] = []
    encoder = Encoder(blocks, content.devices)
    symbols = collect_symbols([*table, *content.in_avals, *content.out_avals])
    header: dict[str, Any] = {
        "name": content.name,
        "symbols": {s.name: [None if b is None else str(b) for b in (s.lower, s.upper)] for s in symbols},
        "in_tree": trees.to_json(content.in_tree),
        "in": [encoder.value(aval) for aval in content.in_avals],
        "arguments": list(content.argument_names),
        "out_tree": trees.to_json(content.out_tree),
        "out": [encoder.value(aval) for aval in content.out_avals],
        "platforms": list(content.platforms),
        "settings": content.settings,
        "primitives": {
            primitive.name: get_version(primitive.name)
            for primitive in sorted(_primitives(jaxpr), key=lambda c: c.name)
        },
        "objects": [encoder.value(item) for item in table],
        "text": len(text),
        "blocks": [array.nbytes for array in blocks],
        "vjp": None if content.vjp is None else len(content.vjp),
        "assumptions": [[str(a.expression), a.line] for a in content.assumptions],
    }
    if content.devices:
        header["devices"] = len(content.devices)
        header["in_shardings"] = [encoder.value(s) for s in content.in_shardings]
        header["out_shardings"] = [encoder.value(s) for s in content.out_shardings]
    body = bytearray(json.dumps(header, separators=(",", ":"), sort_keys=True).encode() + b"\n" + text + b"\n")
    for block in [*(array.tobytes() for array in blocks), *([] if content.vjp is None else [content.vjp])]:
        body += b"\0" * (-len(body) % ALIGNMENT) + block
    return f"weft export {VERSION} {_digest(body)}\n".encode() + bytes(body)


def _digest(body: Any) -> str:
    return hashlib.blake2b(body, digest_size=32).hexdigest()


def _primitives(jaxpr: Jaxpr) -> set[Any]:
    found = {e.primitive for e in jaxpr.eqns}
    return found.union(*(_primitives(inner) for e in jaxpr.eqns for inner in subjaxprs(e.params)))


def collect_symbols(items: Sequence[Any]) -> list[Symbol]:
    """Collect the symbols of sizes and types and those in their bounds, bounds first. The text of a jaxpr has all its
    sizes as handles."""
    found: dict[Symbol, None] = {}

    def add(symbol: Symbol) -> None:
        if symbol in found:
            return
        for bound in (symbol.lower, symbol.upper):
            for inner in getattr(bound, "symbols", ()):
                add(inner)
        found[symbol] = None

    sizes = [size for item in items for size in (item.shape if isinstance(item, ArrayType) else (item,))]
    own = {symbol for size in sizes if isinstance(size, Expression) for symbol in size.symbols}
    for symbol in sorted(own, key=lambda s: s.name):
        add(symbol)
    return list(found)


def read(data: bytes) -> Content:
    """Read the file of an export; raise `FileFormatError` for any other bytes."""
    with _all_as_format_errors():
        return _read(memoryview(data).toreadonly())


@contextmanager
def _all_as_format_errors() -> Iterator[None]:
    """Convert all errors to `FileFormatError`: a malformed file fails in the reader of JSON, in the parser, in type
    rules or in the verifier, each with its own errors, which become the cause."""
    try:
        yield
    except (FileFormatError, InternalError):
        raise
    except (Exception, RecursionError) as error:
        first = (str(error).splitlines() or [""])[0]
        what = f"This is no export that can be read: {type(error).__name__}: {first}"
        raise FileFormatError(what, fix="a new copy of the file") from error


def _read(data: memoryview) -> Content:
    start = _MAGIC.match(bytes(data[:100]))
    if start is None:
        raise FileFormatError("This is no export: it does not begin with `weft export`, a version and a digest.")
    version = int(start[1])
    if version != VERSION:
        raise FileFormatError(
            f"The export must be of version {VERSION} to be read by this Weft, got version {version}."
        )
    body = data[start.end() :]
    if _digest(body).encode() != start[2]:
        raise FileFormatError("The export is damaged: its digest is another one.", fix="a new copy of the file")
    line_end = bytes(body[:MOST_HEADER_BYTES]).find(b"\n")
    if line_end < 0:
        raise FileFormatError("The header of the export has no end.")
    header = json.loads(bytes(body[:line_end]))
    return _content(header, body, line_end + 1)


def _content(header: Any, body: memoryview, position: int) -> Content:
    length = _count(header["text"])
    text = bytes(body[position : position + length]).decode()
    if len(text.encode()) != length:
        raise FileFormatError("The export is too short: it ends in its text.")
    _check_nesting(text)
    position += length + 1
    blocks: list[memoryview] = []
    wanted = [_count(size) for size in header["blocks"]]
    vjp_size = header["vjp"]
    for size in [*wanted, *([] if vjp_size is None else [_count(vjp_size)])]:
        position += -position % ALIGNMENT
        blocks.append(body[position : position + size])
        if len(blocks[-1]) != size:
            raise FileFormatError("The export is too short: it ends in its constants.")
        position += size
    vjp = None if vjp_size is None else bytes(blocks.pop())
    for name, version in header["primitives"].items():
        if get_version(name) < version:
            raise FileFormatError(
                f"The export needs `{name}` of version {version}; this Weft only has version {get_version(name)}.",
                fix="a newer Weft",
            )
    symbols = _symbols(header["symbols"])
    count = _count(header.get("devices", 0))
    if count > MOST_DEVICES:
        raise FileFormatError(f"The export must be for at most {MOST_DEVICES} devices, got {count}.")
    devices = stand_ins(count)
    decoder = Decoder(blocks, symbols, devices)
    in_avals, out_avals = (tuple(decoder.value(t) for t in header[side]) for side in ("in", "out"))
    table = [decoder.value(item) for item in header["objects"]]
    jaxpr = parse(text, table)
    unknown = _primitives(jaxpr) - {lookup(name) for name in header["primitives"]}
    refused = [
        primitive.name
        for primitive in _primitives(jaxpr)
        if not is_builtin(primitive) or isinstance(primitive, Callback)
    ]
    if unknown or refused:
        names = ", ".join([primitive.name for primitive in unknown] or refused)
        raise FileFormatError(f"The text of the export has operations that cannot be exported: {names}.")
    verify(jaxpr)
    name = _text(header["name"])
    content = Content(
        name,
        jaxpr.replace(name=name),
        trees.from_json(header["in_tree"]),
        in_avals,
        trees.from_json(header["out_tree"]),
        out_avals,
        tuple(_text(a) for a in header["arguments"]),
        tuple(_text(p) for p in header["platforms"]),
        _settings(header["settings"]),
        vjp,
        tuple(Assumption(size_from_text(e, symbols), _text(line)) for e, line in header.get("assumptions", ())),
        devices,
        *(_shardings(header.get(f"{side}_shardings", ()), decoder) for side in ("in", "out")),
    )
    _check_agreement(content, table)
    return content


def _shardings(values: Any, decoder: Decoder) -> tuple[Any, ...]:
    found = tuple(None if value is None else decoder.value(value) for value in values)
    if not all(isinstance(s, (NamedSharding, type(None))) for s in found):
        raise FileFormatError("The shardings of the export are invalid.")
    return found


def _settings(value: Any) -> dict[str, Any]:
    kinds: dict[str, Any] = {"enable_x64": bool, "default_matmul_precision": (str, type(None))}
    if set(value) != set(kinds) or not all(isinstance(value[name], kind) for name, kind in kinds.items()):
        raise FileFormatError("The export has settings that no export has.")
    return dict(value)


def _check_agreement(content: Content, table: Sequence[Any]) -> None:
    """Raise unless the types and structures of the header agree with the jaxpr."""
    pairs = (
        (content.in_avals, content.in_tree, content.jaxpr.in_avals, "arguments"),
        (content.out_avals, content.out_tree, content.jaxpr.out_avals, "results"),
    )
    for types, structure, own, what in pairs:
        present = [t for t in types if not is_empty(t)]
        if len(types) != structure.num_leaves or len(present) != len(own):
            raise FileFormatError(f"The {what} in the header of the export differ from those of its text.")
        if not all(isinstance(t, ArrayType) and t.matches(o) for t, o in zip(present, own, strict=True)):
            raise FileFormatError(f"The types of {what} in the header of the export differ from those of its text.")
    for shardings, types in ((content.in_shardings, content.in_avals), (content.out_shardings, content.out_avals)):
        if len(shardings) != (len(types) if content.devices else 0):
            raise FileFormatError("The export must have a sharding for each argument and result.")
    if len(content.argument_names) != len(content.in_avals):
        raise FileFormatError("The export does not name all its arguments.")
    declared = collect_symbols(content.in_avals)
    free = [s.name for s in collect_symbols([*table, *content.out_avals]) if s not in declared]
    if free:
        raise FileFormatError(f"The export has sizes that no argument determines: {', '.join(free)}.")


def is_empty(aval: Any) -> bool:
    """Return whether a type has no elements to compute, as the tangents of integers."""
    return isinstance(aval, ArrayType) and aval.dtype == float0


def _symbols(declared: Any) -> dict[str, Dimension]:
    if len(declared) > MOST_SYMBOLS:
        raise FileFormatError(f"The export must not have more than {MOST_SYMBOLS} symbols.")
    known: dict[str, Dimension] = {}
    waiting = dict(declared)
    while waiting:
        before = len(waiting)
        for name, (lower, upper) in list(waiting.items()):
            bounds = [b for b in (lower, upper) if b is not None]
            if any(word in waiting for b in bounds for word in re.findall(r"[A-Za-z_]\w*", b)):
                continue
            if not name.isidentifier():
                raise FileFormatError(f"The symbols of the export must be identifiers, got {name!r}.")
            low, high = (None if b is None else size_from_text(b, known) for b in (lower, upper))
            known[name] = Symbol(name, low, high)
            del waiting[name]
        if len(waiting) == before:
            raise FileFormatError(f"The bounds of symbols must not be cyclic: {', '.join(waiting)}.")
    return known


def _check_nesting(text: str) -> None:
    depth = 0
    for character in text:
        if character in "([{":
            depth += 1
            if depth > DEEPEST:
                raise FileFormatError(f"The text of the export must not be nested deeper than {DEEPEST} brackets.")
        elif character in ")]}":
            depth -= 1


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise FileFormatError(f"A length in the header must be an integer from 0 up, got {value!r}.")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise FileFormatError(f"A name in the header must be a string, got {value!r}.")
    return value

"""Disk cache of machine code: code that one process compiled is only linked by the next.

Kernels that were compiled together are one object; each of them has a small file, a *note*, with the object's name.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator

from weft.compiler.cache import folder, make_key, read, write
from weft.compiler.target.cpu import link
from weft.compiler.target.cpu.link import Object, Tier
from weft.compiler.target.target import Target

MAGIC = b"weft object 1\n"
NOTE_MAGIC = b"weft note 1\n"


def load(key: str) -> Object | None:
    """Return the object stored under a key, or None if it is missing or incomplete."""
    content = read(key + ".o", MAGIC)
    if content is None:
        return None
    head, _, code = content.partition(b"\n")
    try:
        exports, imports = json.loads(head)
    except ValueError:
        return None
    return Object(code, tuple(exports), tuple(imports))


def store(key: str, code: Object) -> None:
    """Store an object under a key."""
    head = json.dumps([code.exports, code.imports]).encode()
    write(key + ".o", MAGIC, head + b"\n" + code.code)


def load_object(
    name: str,
    text: Callable[[], str],
    target: Target,
    tier: Tier,
    make: Callable[[str, Target, Tier], Object] = link.make_object,
) -> Object:
    """Return the object of one of the compiler's own texts, compiled if it is not in the cache. The name identifies the
    text: a change of the text changes the state of the compiler, which is part of the key."""
    if folder() is None:
        return make(text(), target, tier)
    key = make_key(name, target, tier.name)
    found = load(key)
    if found is None:
        found = make(text(), target, tier)
        store(key, found)
    return found


def is_stored(name: str, target: Target, tier: Tier) -> bool:
    """Return whether a kernel is on disk, judged by the existence of its note."""
    where = folder()
    return where is not None and os.path.exists(os.path.join(where, make_key(name, target, tier.name) + ".k"))


def load_kernels(names: Iterable[str], target: Target, tier: Tier) -> Iterator[tuple[Object, list[str]]]:
    """Yield the stored objects with some of these kernels, each with the names of those that it contains."""
    if folder() is None:
        return
    groups: dict[str, list[str]] = {}
    for name in names:
        note = read(make_key(name, target, tier.name) + ".k", NOTE_MAGIC)
        if note is not None:
            groups.setdefault(note.decode("ascii", "replace"), []).append(name)
    for key, found in groups.items():
        code = load(key)
        if code is not None and set(found) <= set(code.exports):
            yield code, found


def store_kernels(code: Object, target: Target, tier: Tier) -> None:
    """Store an object with kernels, and a note for each of them."""
    if folder() is None:
        return
    key = make_key(" ".join(code.exports), target, tier.name)
    store(key, code)
    for name in code.exports:
        write(make_key(name, target, tier.name) + ".k", NOTE_MAGIC, key.encode())

"""Machine code on disk: what was compiled once is linked, not compiled, by the next process.

Kernels that were compiled together are one object; a note for each of them says which.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator

from weft.compiler.cache import folder, key_of, read, write
from weft.compiler.target.cpu import link
from weft.compiler.target.cpu.link import Object, Tier
from weft.compiler.target.target import Target

MAGIC = b"weft object 1\n"
NOTE_MAGIC = b"weft note 1\n"


def load(key: str) -> Object | None:
    """The object stored under a name, if it is there and complete."""
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
    """Store an object."""
    head = json.dumps([code.exports, code.imports]).encode()
    write(key + ".o", MAGIC, head + b"\n" + code.code)


def cached_object(
    name: str,
    text: Callable[[], str],
    target: Target,
    tier: Tier,
    make: Callable[[str, Target, Tier], Object] = link.make_object,
) -> Object:
    """The object of a text of the compiler's own, made of it if it is not stored yet. The name identifies the text:
    what changes the text changes the state of the compiler, which is in the key."""
    if folder() is None:
        return make(text(), target, tier)
    key = key_of(name, target, tier.name)
    found = load(key)
    if found is None:
        found = make(text(), target, tier)
        store(key, found)
    return found


def is_stored(name: str, target: Target, tier: Tier) -> bool:
    """Whether a kernel is on disk, as far as the name of a file says so."""
    where = folder()
    return where is not None and os.path.exists(os.path.join(where, key_of(name, target, tier.name) + ".k"))


def load_kernels(names: Iterable[str], target: Target, tier: Tier) -> Iterator[tuple[Object, list[str]]]:
    """The objects that have some of the kernels, each with the names it has of them."""
    if folder() is None:
        return
    groups: dict[str, list[str]] = {}
    for name in names:
        note = read(key_of(name, target, tier.name) + ".k", NOTE_MAGIC)
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
    key = key_of(" ".join(code.exports), target, tier.name)
    store(key, code)
    for name in code.exports:
        write(key_of(name, target, tier.name) + ".k", NOTE_MAGIC, key.encode())

"""Static libraries: objects in an archive with the index of symbols that linkers need."""

from __future__ import annotations

import struct
from collections.abc import Sequence

_MAGIC = b"!<arch>\n"


def write_archive(members: Sequence[tuple[str, bytes, Sequence[str]]]) -> bytes:
    """Return the bytes of a static library in the format of System V.

    Args:
        members: for each object its file name, its bytes and the symbols that it defines.
    """
    names = b"".join(name.encode() + b"/\n" for name, _, _ in members)
    count = sum(len(symbols) for *_, symbols in members)
    texts = b"".join(symbol.encode() + b"\0" for *_, symbols in members for symbol in symbols)
    index_size = 4 + 4 * count + len(texts)
    position = len(_MAGIC) + _even(60 + index_size) + _even(60 + len(names))
    offsets, body, name_offset = [], b"", 0
    for name, content, symbols in members:
        offsets += [position + len(body)] * len(symbols)
        body += _member(f"/{name_offset}", content)
        name_offset += len(name) + 2
    index = struct.pack(f">I{count}I", count, *offsets) + texts
    return _MAGIC + _member("/", index) + _member("//", names) + body


def _even(size: int) -> int:
    return size + size % 2


def _member(name: str, content: bytes) -> bytes:
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode()
    return head + content + b"\n" * (len(content) % 2)

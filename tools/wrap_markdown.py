"""Wrap long paragraphs and list items of Markdown files at 100 columns.

    python tools/wrap_markdown.py docs/numerics.md ...      rewrite these files
    python tools/wrap_markdown.py --check docs              list files with prose beyond 100 columns

Code, tables, headings and lines that consist of one link stay as they are, and so does a block whose lines all fit.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import textwrap
from collections.abc import Iterator

WIDTH = 100
FENCE = re.compile(r"\s*(```|~~~)")
ITEM = re.compile(r"(\s*)([-*+]|\d+\.)\s+")
LITERAL = re.compile(r"\s*(\||#|<|>|!!!|\[[^\]]+\]: )")
UNBROKEN = re.compile(r"`[^`]+`|\[[^\]]*\]\([^)]*\)")
"""Spans that are kept on one line: code and links."""
MARKUP = re.compile(r"([-*+#>|]|\d+\.)(\s|$)")
"""Words that would mean something else at the beginning of a line."""


def is_prose(line: str) -> bool:
    """Return whether a line outside of code belongs to a paragraph or a list item."""
    return bool(line.strip()) and not LITERAL.match(line)


def blocks(text: str) -> Iterator[tuple[bool, list[str]]]:
    """Split a text into blocks of lines, each with whether it is prose."""
    block: list[str] = []
    fenced = False
    for line in text.splitlines():
        if FENCE.match(line) or fenced:
            if block:
                yield True, block
                block = []
            fenced ^= bool(FENCE.match(line))
            yield False, [line]
        elif not is_prose(line) or (not block and line.startswith("    ")) or line.lstrip().startswith(">>>"):
            if block:
                yield True, block
                block = []
            yield False, [line]
        elif ITEM.match(line) and block:
            yield True, block
            block = [line]
        else:
            block.append(line)
    if block:
        yield True, block


def wrap_block(lines: list[str]) -> list[str]:
    """Wrap one paragraph or list item."""
    if all(len(line) <= WIDTH for line in lines):
        return lines
    item = ITEM.match(lines[0])
    first = item.group() if item else re.match(r"\s*", lines[0]).group()  # type: ignore[union-attr]
    rest = " " * len(first)
    content = " ".join([lines[0][len(first) :], *(line.strip() for line in lines[1:])])
    if content.count("`") % 2:
        return lines
    kept = UNBROKEN.sub(lambda m: m.group().replace(" ", "\0") if len(m.group()) < WIDTH - 20 else m.group(), content)
    # A word that is markup at the beginning of a line stays with the one before it.
    kept = re.sub(r" (?=(?:[-*+#>|]|\d+\.) )", "\0", kept)
    wrapped = textwrap.wrap(
        kept, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace("\0", " ") for line in wrapped]


def wrap(text: str) -> str:
    """Wrap the long blocks of a text."""
    lines = [line for prose, block in blocks(text) for line in (wrap_block(block) if prose else block)]
    return "\n".join(lines) + "\n"


def long_lines(text: str) -> list[int]:
    """Return the numbers of lines of prose that are too long and could be wrapped."""
    found, number = [], 0
    for prose, block in blocks(text):
        for line in block:
            number += 1
            # A line of one word, such as a link, cannot be shorter.
            if prose and len(line) > WIDTH and " " in UNBROKEN.sub("x", line.strip()):
                found.append(number)
    return found


def main() -> None:
    """Wrap or check the files of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", type=pathlib.Path, nargs="+")
    parser.add_argument("--check", action="store_true", help="list what is too long")
    options = parser.parse_args()
    for path in [file for p in options.paths for file in (sorted(p.rglob("*.md")) if p.is_dir() else [p])]:
        text = path.read_text(encoding="utf-8")
        if not options.check:
            path.write_text(wrap(text), encoding="utf-8")
        elif numbers := long_lines(text):
            print(f"{path}: {len(numbers)} lines, {', '.join(map(str, numbers[:8]))}")


if __name__ == "__main__":
    main()

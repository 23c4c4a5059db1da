"""Rename an identifier everywhere: in Python code by tokens, and between backticks in documents and docstrings.

    python tools/rename.py old_name new_name                            in weft, tests, benchmarks, examples, docs
    python tools/rename.py _placed _place --in weft/runtime/sharded.py  a private name, in these files or folders only

Refuses a new name that any of these files uses already. Strings that contain the old name as a word are printed, since
modules that are loaded late and tables may name a function so; `--strings` renames in them too.
"""

from __future__ import annotations

import argparse
import io
import pathlib
import re
import sys
import tokenize

ROOT = pathlib.Path(__file__).parents[1]
FOLDERS = ("weft", "tests", "benchmarks", "examples", "docs", "tools")


def rename_code(source: str, old: str, new: str, strings: bool) -> tuple[str, list[int]]:
    """Rename in the tokens of a Python file; return its text and the lines of strings that still have the old name."""
    lines = source.splitlines(keepends=True)
    word, quoted = re.compile(rf"\b{re.escape(old)}\b"), re.compile(rf"`{re.escape(old)}(?=[`(])")
    edits: list[tuple[int, int, int, int, str]] = []
    left: list[int] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        text = token.string
        if token.type == tokenize.NAME and text == old:
            text = new
        elif token.type in (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", -1)):
            text = (word if strings else quoted).sub(lambda m: m.group().replace(old, new), text)
            if token.type != tokenize.COMMENT and word.search(text):
                left.append(token.start[0])
        if text != token.string:
            edits.append((*token.start, *token.end, text))
    for row, column, end_row, end_column, text in reversed(edits):
        head, tail = lines[row - 1][:column], lines[end_row - 1][end_column:]
        lines[row - 1 : end_row] = (head + text + tail).splitlines(keepends=True)
    return "".join(lines), left


def uses(path: pathlib.Path, name: str) -> bool:
    """Return whether a Python file has the name as a token."""
    source = path.read_text(encoding="utf-8")
    if not re.search(rf"\b{re.escape(name)}\b", source):
        return False
    return any(
        t.type == tokenize.NAME and t.string == name for t in tokenize.generate_tokens(io.StringIO(source).readline)
    )


def main() -> int:
    """Rename and report what was left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--in", dest="paths", nargs="+", type=pathlib.Path, default=[ROOT / f for f in FOLDERS])
    parser.add_argument(
        "--strings", action="store_true", help="rename in strings and comments too, not only in backticks"
    )
    parser.add_argument("--merge", action="store_true", help="allow a new name that is used already")
    options = parser.parse_args()
    files = [
        f for p in options.paths for f in ([p] if p.is_file() else sorted(p.rglob("*"))) if f.suffix in (".py", ".md")
    ]
    files = [f for f in files if re.search(rf"\b{re.escape(options.old)}\b", f.read_text(encoding="utf-8"))]
    taken = [f for f in files if f.suffix == ".py" and uses(f, options.new)]
    if taken and not options.merge:
        print(f"{options.new} must not be in use; {taken[0]} has it. Choose another name, or say --merge.")
        return 1
    for path in files:
        source = path.read_text(encoding="utf-8")
        if path.suffix == ".md":
            left: list[int] = []
            text = re.sub(rf"`{re.escape(options.old)}(?=[`(])", f"`{options.new}", source)
        else:
            text, left = rename_code(source, options.old, options.new, options.strings)
        if text != source:
            path.write_text(text, encoding="utf-8")
            print("renamed in", path)
        for line in left:
            print(f"a string still has it: {path}:{line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

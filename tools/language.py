"""Measure the language of the code: docstrings, names, sentences and error messages.

    python tools/language.py                     table of counts, a row for each folder of weft
    python tools/language.py weft/ir             the same for one folder or file
    python tools/language.py weft/ir --list      every place that counts, with its line
    python tools/language.py --random 30         functions drawn at random, with their docstrings (--seed N for others)

The counts are a thermometer: they find sentences worth reading again, and a low count does not prove a good text.
`tests/unit/test_language.py` keeps them from rising.
"""

from __future__ import annotations

import argparse
import ast
import io
import pathlib
import random
import re
import tokenize
from collections.abc import Iterator
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = ROOT / "weft"

ARTICLES = ["the", "a", "an", "one", "those", "these", "such", "some", "all", "both", "each", "every", "none", "nobody"]
OPENINGS = frozenset([*ARTICLES, "what", "whether", "how", "which", "where", "who", "that", "as"])
"""First words of a docstring that make it a noun phrase or a relative clause instead of an imperative."""
SENTENCES = re.compile(
    r"\b(who|whoever|whom|nobody|somebody|anybody)\b|\bso (many|much|often|long)\b|\bof which\b"
    r"|\b(is|are) there for\b|\b(is|are) (told|asked)\b|\bwhat (it|they) (is|are|has|have)\b"
    r"|(?-i:\bis none\b|\bare none\b)",
    re.I,
)
"""Constructions that a reader has to decode."""
FAULT = re.compile(
    r"must|need|cannot|can't|\bnot\b|n't|\bno\b|\bgot\b|expect|should|invalid|unknown|unsupported|fail|\bonly\b|out of"
    r"|missing|\btoo\b|differ|mismatch|already|without|at least|at most|received|outside|twice|lost|refus|exceed|wrong"
    r"|neither|nothing|occupied|empty|inconsisten|remainder|\bbut\b|incompatible|conflict|duplicate|unexpected|corrupt"
    r"|damaged|instead|unreadable|undefined|never",
    re.I,
)
"""Words that say that something is wrong. A message without one states the rule as if it were a fact."""
PARTICIPLE = re.compile(r"_*(?:[a-z0-9]+_)*[a-z]{3,}ed|_*[a-z]{3,}ed_\w+")
NOT_PARTICIPLES = re.compile(r"(?:^|_)(?:embed|need|feed|speed|seed|bed|shed|exceed|proceed|red|led|newaxed)$")
CLASSES = ("docstrings", "of names", "participles", "sentences", "errors")


class Place(NamedTuple):
    """Counted place."""

    path: pathlib.Path
    line: int
    kind: str
    text: str


class Counts(NamedTuple):
    """Places of every kind, with the numbers of functions and docstrings among which they are counted."""

    places: list[Place]
    functions: int
    docstrings: int

    def number(self, kind: str) -> int:
        """Return the number of places of a kind."""
        return sum(place.kind == kind for place in self.places)


def is_property(function: ast.AST) -> bool:
    """Return whether a decorator makes the function an attribute, whose docstring starts with a noun."""
    decorators = getattr(function, "decorator_list", ())
    return any(re.search(r"property|fixture|\.setter", ast.unparse(each)) for each in decorators)


def message(error: ast.Call) -> str | None:
    """Return the literal text of an error that is raised, or None if it is computed elsewhere."""
    if not error.args or not isinstance(error.args[0], (ast.Constant, ast.JoinedStr, ast.BinOp)):
        return None
    parts = [each.value for each in ast.walk(error) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return "".join(parts) or None


def places(path: pathlib.Path) -> Counts:
    """Find the places of one file."""
    source = path.read_text(encoding="utf-8")
    found: list[Place] = []
    functions = docstrings = 0
    texts: list[tuple[int, str]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)):
            text = ast.get_docstring(node)
            line = getattr(node, "lineno", 1)
            if text:
                texts.append((line, text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not re.fullmatch(r"__\w+__", node.name):
            functions += 1
            if text and not is_property(node):
                docstrings += 1
                if text.split()[0].strip("`*,.:;").lower() in OPENINGS:
                    found.append(Place(path, line, "docstrings", f"{node.name}: {text.splitlines()[0]}"))
            if node.name.endswith("_of"):
                found.append(Place(path, line, "of names", node.name))
            if PARTICIPLE.fullmatch(node.name) and not NOT_PARTICIPLES.search(node.name) and not is_property(node):
                found.append(Place(path, line, "participles", node.name))
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            raised = message(node.exc)
            if raised and not FAULT.search(raised):
                found.append(Place(path, node.lineno, "errors", raised))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            texts.append((token.start[0], token.string))
    for line, text in texts:
        for sentence in re.split(r"(?<=[.:;])\s+", " ".join(text.split())):
            if SENTENCES.search(sentence):
                found.append(Place(path, line, "sentences", sentence))
    return Counts(sorted(found, key=lambda place: (place.line, place.kind)), functions, docstrings)


def count(root: pathlib.Path) -> Counts:
    """Find the places of all Python files below a folder, or of one file."""
    found = [places(path) for path in ([root] if root.is_file() else sorted(root.rglob("*.py")))]
    return Counts(
        [p for f in found for p in f.places], sum(f.functions for f in found), sum(f.docstrings for f in found)
    )


def table(roots: list[pathlib.Path]) -> Iterator[str]:
    """Format a row of counts for each folder, and their sum."""
    rows = [(root.name, count(root)) for root in roots]
    total = Counts(
        [p for _, c in rows for p in c.places], sum(c.functions for _, c in rows), sum(c.docstrings for _, c in rows)
    )
    yield f"{'':24}{'functions':>10}" + "".join(f"{kind:>18}" for kind in CLASSES)
    for name, counts in [*rows, ("all", total)]:
        if not counts.functions:
            continue
        cells = [f"{counts.number(kind):>18}" for kind in CLASSES]
        cells[0] = f"{counts.number('docstrings'):>10} ({counts.number('docstrings') / max(counts.docstrings, 1):4.0%})"
        cells[2] = f"{counts.number('participles'):>10} ({counts.number('participles') / counts.functions:4.1%})"
        yield f"{name:24}{counts.functions:>10}" + "".join(f"{cell:>18}" for cell in cells)


def draw(root: pathlib.Path, number: int, seed: int) -> Iterator[str]:
    """Draw functions at random and format their heads with the docstrings."""
    found = []
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("__") and ast.get_docstring(node):
                found.append((path, node))
    for path, node in random.Random(seed).sample(found, min(number, len(found))):
        yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}({', '.join(a.arg for a in node.args.args)})"
        yield from (f"    {line}" for line in (ast.get_docstring(node) or "").splitlines())


def main() -> None:
    """Print what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=pathlib.Path, nargs="?", default=PACKAGE)
    parser.add_argument("--list", action="store_true", help="every place, not only counts")
    parser.add_argument("--random", type=int, metavar="N", help="draw N functions")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    root = options.path.resolve()
    if options.random:
        print("\n".join(draw(root, options.random, options.seed)))
    elif options.list:
        for place in count(root).places:
            print(f"{place.path.relative_to(ROOT)}:{place.line} [{place.kind}] {place.text[:300]}")
    else:
        folders = [root] if root != PACKAGE else [p for p in sorted(root.iterdir()) if p.is_dir() or p.suffix == ".py"]
        print("\n".join(table(folders)))


if __name__ == "__main__":
    main()

"""Ceilings of the counts of `tools/language.py`, over the whole package: a count may only go down.

`python tests/unit/test_language.py` writes the present counts below, where they are lower.
"""

from __future__ import annotations

import pathlib
import sys

import pytest

if __name__ == "__main__":  # then the repository is not on the path
    sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

from tests.tooling import load_tool

# class of places | how many are left | what to write instead
TABLE = """
docstrings   |    0 | a verb in the imperative first: "Return ...", "Split ..."; a property begins with a noun
of names     |    8 | a verb or the noun that is returned: `get_range`, `residuals`
participles  |  286 | a verb: `merge`, not `merged`
sentences    |   35 | a term of the field in place of a relative clause
errors       |   48 | what must hold and what was received: "... must ...; got ..."
"""


def rows() -> dict[str, tuple[int, str, str]]:
    """Return ceiling, advice and line of each class of places."""
    found = {}
    for line in TABLE.strip().splitlines():
        kind, ceiling, instead = (part.strip() for part in line.split("|"))
        found[kind] = (int(ceiling), instead, line)
    return found


@pytest.fixture(scope="module")
def counts() -> dict[str, int]:
    return count()


def count() -> dict[str, int]:
    """Count the places of each class over the whole package."""
    language = load_tool("language")
    found = language.count(language.PACKAGE)
    return {kind: found.number(kind) for kind in language.CLASSES}


@pytest.mark.parametrize("kind", list(rows()))
def test_counts_do_not_rise(kind: str, counts: dict[str, int]) -> None:
    ceiling, instead, _ = rows()[kind]
    assert counts[kind] <= ceiling, (
        f"{counts[kind]} {kind}, at most {ceiling} are permitted. Write {instead}. "
        "`python tools/language.py FOLDER --list` shows each place."
    )


def test_every_class_has_a_ceiling() -> None:
    assert tuple(rows()) == load_tool("language").CLASSES


def test_each_class_is_found(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "example.py"
    file.write_text(
        "def range_of(x):\n"
        '    """The range of x."""\n'
        "    raise ValueError('All operands have the same shape.')\n"
        "def merged(x):\n"
        '    """Merge x. Nobody reads it."""\n'
        "    raise ValueError('All operands must have the same shape.')\n"
    )
    places = load_tool("language").places(file).places
    assert sorted((place.kind, place.line) for place in places) == [
        ("docstrings", 1),
        ("errors", 3),
        ("of names", 1),
        ("participles", 4),
        ("sentences", 4),
    ]


def main() -> None:
    """Lower the ceilings in this file to the present counts."""
    here = pathlib.Path(__file__)
    source, present = here.read_text(encoding="utf-8"), count()
    for kind, (ceiling, instead, line) in rows().items():
        if present[kind] < ceiling:
            source = source.replace(line, f"{kind:<12} | {present[kind]:>4} | {instead}")
    here.write_text(source, encoding="utf-8")


if __name__ == "__main__":
    main()

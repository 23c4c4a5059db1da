"""Words that people in this field know: what to write instead of what, and how many files still do otherwise.

The counts may only go down: new text and new names use the words on the right. `python tests/unit/test_words.py` writes
the present counts into the table below, where they are lower.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest

ROOT = pathlib.Path(__file__).parents[2]
THIS = pathlib.Path(__file__).name

# A row: what is looked for | where | what to write instead | in how many files it still is.
# A `name` is looked for in the identifiers of Python code, as a whole or between underscores, since the word itself may
# be good English; a `text` anywhere, in documents, docstrings and comments too.
TABLE = """
name turn, turns, turning              | weft               | iteration                                   | 0
name fold, folds, folded, folding      | weft               | reduce, reduction, accumulate               | 3
name words                             | weft/compiler      | instructions, bytecode                      | 0
name made                              | weft               | result, out                                 | 1
name given                             | weft               | args, operands                              | 0
name program, programs                 | jaxprs             | jaxpr                                       | 1
name product, products                 | matmuls            | matmul, contraction                         | 3
name factor, factors                   | matmuls            | lhs, rhs                                    | 0
name depth                             | weft/compiler/emit | K, the contracting dimension                | 0
name move, moves, moved                | weft/compiler      | data movement, copy                         | 0
name kept                              | weft               | cached, retained, stored: say which         | 1
name spread                            | weft               | broadcast                                   | 0
name joined                            | weft               | concatenated, merged                        | 0
name slope, slopes                     | weft               | derivative                                  | 0
name bare                              | weft               | unfused                                     | 0
name watched                           | weft               | checked                                     | 0
name face, faces                       | weft               | API, frontend                               | 0
name Making                            | weft               | CompileStats                                | 0
name Point                             | weft/compiler      | the address computation that it is          | 0
name settled                           | weft               | final, fixed                                | 0
name Register                          | weft               | slot, pointer slot                          | 0
name Facts, facts                      | weft               | properties                                  | 0
name closed                            | weft/compiler/fuse | materialized                                | 0
name cipher, enciphered                | weft               | hash, bit generator                         | 0
name dear                              | weft               | expensive                                   | 0
name stamp                             | weft               | timestamp                                   | 0
name Where                             | weft               | ArgReduce                                   | 0
name crowded, paged, awkward           | weft               | set conflicts, TLB misses, unaligned        | 0
name walk, walks                       | weft               | map, traverse, visit                        | 1
name turn, turns                       | others             | iteration                                   | 0
name fold, folds, folded, folding      | others             | reduce, reduction, accumulate               | 0
name made                              | others             | result, out                                 | 0
name given                             | others             | args, operands                              | 0
name kept                              | others             | cached, retained, stored: say which         | 0
name joined                            | others             | concatenated, merged                        | 0
name slope, slopes                     | others             | derivative, gradient                        | 0
name watched                           | others             | checked                                     | 0
name face, faces                       | others             | API, library                                | 0
name settled                           | others             | final, fixed                                | 0
name cipher                            | others             | hash, bit generator                         | 0
name dear                              | others             | expensive                                   | 0
name stamp                             | others             | timestamp                                   | 0
text step machine                      | text               | bytecode interpreter                        | 0
text whole number, whole numbers       | text               | integer                                     | 0
text carried program, carried programs | text               | body, sub-jaxpr                             | 1
text settled                           | text               | final, fixed                                | 0
text turn of, turns of                 | text               | iteration of                                | 0
text owed                              | text               | unreduced                                   | 0
text fleet                             | text               | device driver                               | 0
text gift, carrier                     | text               | propagated axis, source                     | 0
"""
# The folders and files of a `where` that is not a folder.
FOLDERS = {
    # Those of the compiler in which a product is a contraction and a factor one of its operands, and not arithmetic of
    # elementary functions or factors of shardings.
    "matmuls": tuple(f"weft/compiler/{f}/" for f in ("emit", "fuse", "kernel", "passes", "program", "target/cpu")),
    "text": ("weft/", "docs/", "tests/", "benchmarks/", "examples/", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"),
    "others": ("tests/", "benchmarks/", "examples/"),
    "jaxprs": tuple(
        f"weft/{f}/" for f in ("ir", "trace", "transforms", "api", "lax", "compiler/passes", "compiler/fuse")
    ),
}
# Names in which the word means what everybody means by it.
ALLOWED = re.compile(
    r"fold_constants|fold_in|fold_rngs|random_fold_in|depth_multiplier|\w*number_of_\w+|axis_factors?|\w*in_place\w*"
    r"|\w*dimension_numbers|negative_slope\w*|slope_rtol|max_number|units_in_the_last_place"
)
IDENTIFIER = re.compile(
    r'(?:[rRbBfFuU]{0,2})(?:"""(?:[^\\]|\\.)*?"""|\'\'\'(?:[^\\]|\\.)*?\'\'\'|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\')'
    r"|#[^\n]*|([A-Za-z_]\w*)",
    re.DOTALL,
)


class Row(NamedTuple):
    """Line of the table."""

    kind: str
    words: tuple[str, ...]
    folders: tuple[str, ...]
    instead: str
    files: int
    line: str

    @property
    def pattern(self) -> re.Pattern[str]:
        joined = "|".join(re.escape(word).replace(r"\ ", r"\s+(?:#\s*)?") for word in self.words)
        return re.compile(rf"(?<![A-Za-z])(?:{joined})(?![A-Za-z])")


def rows() -> Iterator[Row]:
    for line in TABLE.strip().splitlines():
        what, where, instead, files = (part.strip() for part in line.split("|"))
        kind, _, words = what.partition(" ")
        yield Row(kind, tuple(words.split(", ")), FOLDERS.get(where, (f"{where}/",)), instead, int(files), line)


def names_of(path: pathlib.Path) -> str:
    """Return the identifiers of a file of Python, and the name of the file."""
    names = {*IDENTIFIER.findall(path.read_text(encoding="utf-8")), path.stem}
    return " ".join(name for name in names if not ALLOWED.fullmatch(name))


@pytest.fixture(scope="module")
def texts() -> dict[str, dict[str, str]]:
    return read()


def read() -> dict[str, dict[str, str]]:
    """Return the texts that are searched for names and for words, by file."""
    folders = ("weft", "tests", "benchmarks", "examples")
    python = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py")) if path.name != THIS]
    documents = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]
    name = lambda path: path.relative_to(ROOT).as_posix()
    return {
        "name": {name(path): names_of(path) for path in python},
        "text": {name(path): path.read_text(encoding="utf-8") for path in [*python, *documents]},
    }


def files_with(row: Row, texts: dict[str, dict[str, str]]) -> list[str]:
    """Return the files in which one of the words of a row still is."""
    found, starts = row.pattern.search, [word.split()[0] for word in row.words]
    return [
        file
        for file, text in texts[row.kind].items()
        # Looking for a string is many times as fast as for a pattern.
        if file.startswith(row.folders) and any(start in text for start in starts) and found(text)
    ]


@pytest.mark.parametrize("row", list(rows()), ids=lambda row: f"{row.kind} {row.words[0]}")
def test_counts_do_not_grow(row: Row, texts: dict[str, dict[str, str]]) -> None:
    found = files_with(row, texts)
    assert len(found) <= row.files, f"write {row.instead} in place of {row.words[0]!r}; it is in {', '.join(found)}"


def test_words_are_found_in_names_and_not_in_strings_or_comments(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "example.py"
    file.write_text('x_turn = "place" + f(stamp=1)  # kept\n"""a face"""\nreturn_value = random_fold_in(b\'slope\')\n')
    found = {row.words[0] for row in rows() if row.kind == "name" and row.pattern.search(names_of(file))}
    assert found == {"turn", "stamp"}


def main() -> None:
    """Lower the counts in this file."""
    here, texts = pathlib.Path(__file__), read()
    source = here.read_text(encoding="utf-8")
    for row in rows():
        count = len(files_with(row, texts))
        if count < row.files:
            source = source.replace(row.line, f"{row.line.rpartition('|')[0]}| {count}")
    here.write_text(source, encoding="utf-8")


if __name__ == "__main__":
    main()

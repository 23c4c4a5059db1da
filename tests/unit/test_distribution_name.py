"""Installation commands name Weft's own distribution: on PyPI, `weft` is another project."""

from __future__ import annotations

import pathlib
import re
import tomllib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FOLDERS = ("weft", "tests", "docs", "examples", "benchmarks", ".github", ".ci")
TEXTS = {".py", ".md", ".toml", ".yml", ".yaml", ".ipynb", ".sh", ""}
EXTRAS = re.compile(r"""(?<![\w./])(weft(?:-jit)?)\[([a-z][a-z0-9-]*(?:,[a-z][a-z0-9-]*)*)\]""")
"""A requirement with extras, such as `weft-jit[cuda,mpi]`."""
COMMAND = re.compile(r"\b(?:pip|uv pip|pipx|uv|poetry) (?:install|add)\b[^\n`]*?(?<![\w./-])(weft)(?![\w.\[-])")
"""An installation command with the bare name."""


def texts() -> list[pathlib.Path]:
    """Collect the text files of the repository."""
    found = [path for path in ROOT.iterdir() if path.is_file() and path.suffix in TEXTS]
    for folder in FOLDERS:
        found += [path for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix in TEXTS]
    return [path for path in found if path != pathlib.Path(__file__) and "__pycache__" not in path.parts]


def wrong_names(text: str) -> list[str]:
    """Find requirements and commands in `text` that would not install this distribution."""
    wrong = [match[0] for match in COMMAND.finditer(text)]
    for match in EXTRAS.finditer(text):
        unknown = set(match[2].split(",")) - PROJECT["optional-dependencies"].keys()
        if match[1] != PROJECT["name"] or unknown:
            wrong.append(match[0])
    return wrong


def test_metadata_names_the_distribution() -> None:
    assert PROJECT["name"] == "weft-jit"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("pip install 'weft[cuda]'", 1),
        ("pip install weft", 1),
        ("uv add weft", 1),
        ("install weft-jit[absent]", 1),
        ("pip install 'weft-jit[cuda,mpi]'", 0),
        ("python -m pip install ./weft", 0),
    ],
)
def test_samples_are_judged(text: str, wrong: int) -> None:
    assert len(wrong_names(text)) == wrong


def test_texts_install_this_distribution() -> None:
    found = {
        str(path.relative_to(ROOT)): wrong
        for path in texts()
        if (wrong := wrong_names(path.read_text(encoding="utf-8", errors="replace")))
    }
    assert found == {}

"""Files around the package agree with each other: Makefile, workflows of CI, CONTRIBUTING.md, pyproject.toml."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
INTERNAL = {"help", "test-package"}
"""Targets that users do not call."""


def make_targets() -> set[str]:
    """Return the phony targets of the Makefile."""
    line = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert line is not None
    return set(line[1].split())


def mentioned_targets(text: str) -> set[str]:
    """Return the targets of `make` that a text mentions."""
    return set(re.findall(r"\bmake (?!PYTHON|WORKERS)([a-z][a-z-]*)(?=[\s`'\",.;:)]|$)", text))


def test_help_describes_every_target() -> None:
    described = set(re.findall(r'@echo "make ([a-z-]+)', (ROOT / "Makefile").read_text()))
    others = {target for target in make_targets() if target.startswith("setup")} | INTERNAL
    assert described == make_targets() - others


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_call_targets_that_exist(path: pathlib.Path) -> None:
    text = path.read_text(encoding="utf-8")
    called = mentioned_targets(text)
    for values in re.findall(r"^ +(?:target|command): \[(.*)\]$", text, re.M):
        called |= {value.strip().strip('"').split()[0] for value in values.split(",")}
    assert called and called <= make_targets()


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/design/testing.md"])
def test_documents_name_targets_that_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    quoted = set(re.findall(r"`make ([a-z][a-z-]*)", text)) | set(re.findall(r"^make ([a-z][a-z-]*)", text, re.M))
    assert quoted <= make_targets()


def test_workflows_test_the_versions_of_python_that_are_supported() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    supported = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', pyproject)
    tests = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    for versions in re.findall(r"python: \[(.*)\]", tests):
        assert re.findall(r'"(3\.\d+)"', versions) == supported


def test_every_dependency_has_an_oldest_version() -> None:
    script = ROOT / "tools" / "oldest.py"
    lines = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout.splitlines()
    assert {line.partition("==")[0] for line in lines} >= {"numpy", "scipy", "ml_dtypes", "llvmlite"}


def test_citation_has_the_fields_that_are_required() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    keys = set(re.findall(r"^([\w-]+):", text, re.M))
    assert keys >= {"cff-version", "message", "title", "authors"} and "version" not in keys

"""Two builds of one version have the same bytes, wherever and whenever they are made."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import tomllib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
# What is part of a distribution, and what describes it.
PARTS = (
    "weft",
    "tests",
    "docs",
    "examples",
    "benchmarks",
    "tools",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "Makefile",
)
BUILD = "import sys; from hatchling import build; build.build_wheel(sys.argv[1]); build.build_sdist(sys.argv[1])"


def copy_sources(folder: pathlib.Path, mode: int, time: int) -> None:
    """Copy the repository with other permissions and times of files."""
    ignored = shutil.ignore_patterns("__pycache__", "out")
    for name in (*PARTS, *(path.name for path in ROOT.glob("*.md") if path.name not in PARTS)):
        source, target = ROOT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=ignored)
        else:
            target.parent.mkdir(exist_ok=True, parents=True)
            shutil.copy(source, target)
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(mode)
        os.utime(path, (time, time))


@pytest.mark.slow
def test_two_builds_have_the_same_bytes(tmp_path: pathlib.Path) -> None:
    tools = tmp_path / "tools"
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(tools), *requires]
    if subprocess.run(pip, capture_output=True).returncode:
        pytest.skip("the build backend cannot be installed here")
    found: list[dict[str, bytes]] = []
    for name, mode, time in (("first", 0o644, 1_600_000_000), ("second/deeper", 0o664, 1_700_000_000)):
        folder, out = tmp_path / name, tmp_path / f"{name}-dist"
        out.mkdir(parents=True)
        copy_sources(folder, mode, time)
        environment = {**os.environ, "PYTHONPATH": str(tools), "PYTHONHASHSEED": str(len(found))}
        subprocess.run([sys.executable, "-c", BUILD, str(out)], cwd=folder, env=environment, check=True)
        found.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert sorted(pathlib.Path(name).suffix for name in found[0]) == [".gz", ".whl"]
    assert found[0] == found[1]

"""Files of containers agree with the repository. The nightly job builds the image; here its structure is read."""

from __future__ import annotations

import fnmatch
import json
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
INSTRUCTIONS = {"FROM", "RUN", "ENV", "WORKDIR", "USER", "COPY", "CMD"}


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile, with continued lines joined."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"), flags=re.M)
    lines = re.sub(r"\s*\\\n\s*", " ", text).splitlines()
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines if line.strip()]


def stages() -> dict[str, list[tuple[str, str]]]:
    """Return the instructions of each stage by its name, after those of the stage that it begins with."""
    found: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for instruction, rest in instructions():
        if instruction == "FROM":
            source, separator, name = rest.partition(" AS ")
            assert separator, f"the stage from {source} has no name"
            found[name] = list(found.get(source, [("FROM", source)]))
        else:
            found[name].append((instruction, rest))
    return found


def last(stage: str, instruction: str) -> str:
    return [rest for name, rest in stages()[stage] if name == instruction][-1]


def test_instructions_are_known() -> None:
    assert {name for name, _ in instructions()} <= INSTRUCTIONS


@pytest.mark.parametrize("stage", ["development", "demo"])
def test_stages_are_slim_and_run_without_root(stage: str) -> None:
    image = last(stage, "FROM")
    version = re.fullmatch(r"python:(3\.\d+)-slim", image)
    assert version is not None
    supported = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    assert version[1] in supported
    assert last(stage, "USER") == "weft"
    for command in (rest for name, rest in stages()[stage] if name == "RUN" and "apt-get install" in rest):
        assert "--no-install-recommends" in command and "rm -rf /var/lib/apt/lists/*" in command


def test_the_last_stage_runs_the_demo() -> None:
    assert list(stages())[-1] == "demo"
    assert json.loads(last("demo", "CMD")) == ["make", "demo"]
    targets = set(re.findall(r"\bmake ([a-z-]+)", " ".join(rest for _, rest in instructions())))
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(re.search(rf"^{target}:", makefile, re.M) for target in targets if target in ("setup", "demo"))
    # Setting up comes after the files are there, and as the user that they belong to.
    order = [f"{name} {rest}" for name, rest in stages()["demo"]]
    assert order.index("COPY --chown=weft:weft . .") < order.index("RUN make setup")


def test_environments_are_not_copied() -> None:
    patterns = [
        line
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    folders = {*re.findall(r"^\w*VENV\s*:= (\S+)$", makefile, re.M), ".git", "build", "dist"}
    assert len(folders) > 8
    for folder in folders:
        assert any(fnmatch.fnmatch(folder, pattern) for pattern in patterns), folder
    for needed in ("Makefile", "pyproject.toml", "README.md", "LICENSE", "weft", "examples", "docs"):
        assert not any(fnmatch.fnmatch(needed, pattern) for pattern in patterns), needed


def test_the_editor_uses_a_stage_of_the_image() -> None:
    folder = ROOT / ".devcontainer"
    settings = json.loads((folder / "devcontainer.json").read_text(encoding="utf-8"))
    build = settings["build"]
    assert (folder / build["dockerfile"]).resolve() == ROOT / "Dockerfile"
    assert (folder / build["context"]).resolve() == ROOT
    assert settings["remoteUser"] == last(build["target"], "USER")
    # The editor mounts the repository, so that this stage has no copy of it.
    assert all(name != "COPY" for name, _ in stages()[build["target"]])
    assert settings["postCreateCommand"] == "make setup"

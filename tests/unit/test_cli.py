"""The command `weft`: each command as users run it, with its output and exit code."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

import weft
from weft.cli import MODULES, main, make_parser

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "weft", *words],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def test_info_names_versions_and_devices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    found = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if " " in line)
    assert found["weft"] == weft.__version__ and found["devices"].startswith("8 cpu")
    assert {"numpy", "llvmlite", "platform", "cache", "settings"} <= set(found)


def test_cache_is_listed_and_cleared(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = run("cache", "list", WEFT_COMPILATION_CACHE_DIR=str(tmp_path / "cache"))
    assert done.returncode == 0 and "0 files, 0.0 MB" in done.stdout
    program = "import weft; weft.jit(lambda x: weft.numpy.sin(x) * 2)(weft.numpy.ones(5))"
    environment = {**os.environ, "WEFT_COMPILATION_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    assert any((tmp_path / "cache").iterdir())
    done = run("cache", "clear", WEFT_COMPILATION_CACHE_DIR=str(tmp_path / "cache"))
    assert done.returncode == 0 and "deleted" in done.stdout and not any((tmp_path / "cache").iterdir())
    assert run("cache", WEFT_COMPILATION_CACHE="0").returncode == 1


def test_scripts_run_with_their_arguments_and_exit_codes(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, weft, weft.numpy as wnp\nprint(sys.argv[1:], __name__, float(wnp.ones(3).sum()))\nsys.exit(3)\n"
    )
    done = run("run", str(script), "--steps", "2")
    assert (done.returncode, done.stdout) == (3, "['--steps', '2'] __main__ 3.0\n")
    done = run("profile", str(script))
    assert done.returncode == 3 and "__main__ 3.0" in done.stdout and len(done.stdout.splitlines()) > 3
    script.write_text("import jax, jax.numpy as jnp\nprint(jax.__name__, float(jnp.arange(4.0).sum()))\n")
    done = run("run", "--as-jax", str(script))
    assert (done.returncode, done.stdout) == (0, "jax 6.0\n"), done.stderr
    done = run("run", str(tmp_path / "missing.py"))
    assert done.returncode == 2 and "there is no file" in done.stderr


def test_wrong_commands_are_named() -> None:
    done = run("fly")
    assert done.returncode == 2 and "invalid choice: 'fly'" in done.stderr and "Traceback" not in done.stderr
    assert run().returncode == 2


@pytest.mark.parametrize("command", sorted(MODULES))
def test_commands_of_modules_have_help(command: str) -> None:
    done = run(command, "--help")
    assert done.returncode == 0 and "usage" in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completions_name_all_commands(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    help_text = make_parser().format_help()
    listed = text.split('compgen -W "')[1].split('"')[0].split()
    assert all(f"    {name}" in help_text for name in listed)

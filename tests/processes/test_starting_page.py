"""Commands of docs/starting.md run as they stand there: schedulers are simulated, hosts are network namespaces."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.processes.hosts import hosts, needs_hosts
from tests.processes.launching import ROOT, environment, needs_mpich

PAGE = (ROOT / "docs" / "starting.md").read_text(encoding="utf-8")
TRAIN, *OTHER_CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SHELL = [block.strip() for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)]
# A block is one script where its commands run at once, and otherwise has a command in each line.
COMMANDS = [c for block in SHELL for c in ([block] if "&\n" in block or "--nnodes 2" in block else block.splitlines())]
FAST = ("python -m weft.launch -n 2 train.py",)
SRUN = """
import os, subprocess, sys
option, *command = sys.argv[1:]
if option == "-n":
    count, *command = command
    tasks, nodes = int(count), 1
else:
    assert option == "--ntasks-per-node=1"
    tasks = nodes = 2
running = []
for i in range(tasks):
    variables = {"JOB_ID": os.environ["JOB"], "STEP_ID": "0", "NTASKS": tasks, "PROCID": i, "NNODES": nodes}
    variables |= {"NODEID": i if nodes > 1 else 0, "LOCALID": 0 if nodes > 1 else i, "STEP_NODELIST": "localhost"}
    settings = {f"SLURM_{name}": str(value) for name, value in variables.items()}
    running.append(subprocess.Popen(command, env=os.environ | settings))
sys.exit(max([process.wait() for process in running]))
"""
pytestmark = needs_mpich


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Folder with train.py, and with the programs that commands name."""
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "srun.py").write_text(SRUN)
    programs = tmp_path / "programs"
    programs.mkdir()
    python = shlex.quote(sys.executable)
    scripts = {
        "python": f'exec {python} "$@"',
        "srun": f'exec {python} {tmp_path}/srun.py "$@"',
        "scontrol": "echo localhost",
    }
    for name, script in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    yield tmp_path


def run(folder: pathlib.Path, script: str, count: int) -> None:
    """Run a script of the shell; every process must have the sum over the devices of all."""
    beside = pathlib.Path(sys.executable).parent
    settings = environment(PATH=f"{folder / 'programs'}:{beside}:{os.environ['PATH']}", JOB=str(os.getpid()))
    for name in ("WEFT_NUM_CPU_DEVICES", "PYTHONUNBUFFERED"):  # pieces of lines would mix without a launcher of ours
        settings.pop(name, None)
    done = subprocess.run(
        ["sh", "-c", f"{script}\nwait"],
        env=settings,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    found = re.findall(r"^(?:\[\d+\] )?(\d+) (\d+) ([\d.]+)$", done.stdout, re.MULTILINE)
    assert sorted(found) == [(str(i), str(count), "64.0") for i in range(count)], f"{done.stdout}\n{done.stderr}"


def test_the_page_has_commands() -> None:
    assert len(COMMANDS) >= 10 and all(command in COMMANDS for command in FAST)


@pytest.mark.parametrize(
    "command",
    [c if c in FAST else pytest.param(c, marks=pytest.mark.slow) for c in COMMANDS if "node1" not in c],
)
def test_commands_of_one_host(command: str, folder: pathlib.Path) -> None:
    script = command
    if "1234" in command:
        with socket.create_server(("", 0)) as free:
            script = command.replace("1234", str(free.getsockname()[1]))
    run(folder, script, 4 if "-n 4" in command else 2)
    if "--log-dir" in command:
        assert (folder / "logs" / "start_0" / "process_1.out").read_text() == "1 2 64.0\n"


@needs_hosts
@pytest.mark.slow
@pytest.mark.parametrize("command", [c for c in COMMANDS if "node1" in c])
def test_commands_of_several_hosts(command: str, folder: pathlib.Path) -> None:
    with hosts(2) as both:
        lines = []
        for i, line in enumerate(command.splitlines()):
            where = both[i] if "--nnodes" in line else both[0]
            words = shlex.split(line, comments=True)
            if "--hosts" in line:
                words[3:3] = ["--remote", "ip netns exec {host}", "--rdzv", f"{both[0].address}:0"]
                words = [w.replace("node1", both[0].name).replace("node2", both[1].name) for w in words]
            else:
                words = [w.replace("node1", both[0].address) for w in words]
            lines.append(f"{shlex.join(where.command(*words))} &")
        run(folder, "\n".join(lines), 4)


@needs_hosts
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare, for host names")
def test_pods_of_the_manifest_join(folder: pathlib.Path) -> None:
    manifest = next(block for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "JobSet" in block)
    count = int(re.findall(r"completions: (\d+)", manifest)[0])
    variables = dict(re.findall(r'\{name: (\w+), value: "([^"]*)"\}', manifest))
    assert variables["JAX_NUM_PROCESSES"] == str(count)
    set_name, job = re.findall(r"name: (\w+)", manifest)[:2]
    with hosts(count) as pods:
        names = [f"{set_name}-{job}-0-{i}" for i in range(count)]
        table = [f"{p.address} {n}.{set_name}.default.svc.cluster.local {n}" for p, n in zip(pods, names, strict=True)]
        (folder / "hosts").write_text("127.0.0.1 localhost\n" + "\n".join(table) + "\n")
        lines = []
        for i, (pod, name) in enumerate(zip(pods, names, strict=True)):
            inside = f"mount --bind {folder / 'hosts'} /etc/hosts; hostname {name}; exec python train.py"
            settings = [f"{key}={value}" for key, value in {**variables, "JOB_COMPLETION_INDEX": str(i)}.items()]
            lines.append(f"{shlex.join(pod.command('env', *settings, 'unshare', '-u', '-m', 'sh', '-c', inside))} &")
        run(folder, "\n".join(lines), count)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray: make test-ray")
def test_workers_of_ray_join(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(next(code for code in OTHER_CODE if "import ray" in code))
    done = subprocess.run(
        [sys.executable, str(script)], env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert "[16.0, 16.0]" in done.stdout, done.stderr

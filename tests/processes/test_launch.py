"""The launcher: its command line, lines, signals, failures and restarts, on one host and on several."""

from __future__ import annotations

import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from tests.processes.hosts import Host, hosts, needs_hosts
from tests.processes.launching import ROOT, SCRIPTS, environment, needs_mpich
from weft.launch import options
from weft.launch.children import Lines
from weft.launch.nodes import variables_for_others
from weft.launch.options import HostSlots, parse, parse_hosts, remote_command, share

LAUNCH = [sys.executable, "-m", "weft.launch", "--launcher", "weft"]


class Ended(NamedTuple):
    """Result of a launch."""

    code: int
    out: str
    errors: str
    seconds: float


def launch(folder: pathlib.Path, script: str, *arguments: str, count: int = 2, **settings: str) -> Ended:
    """Launch a script with options of the launcher."""
    file = folder / "script.py"
    file.write_text(script)
    begin = time.monotonic()
    command = [*LAUNCH, "-n", str(count), *arguments, str(file), str(folder)]
    done = subprocess.run(
        command, env=environment(**settings), cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    return Ended(done.returncode, done.stdout, done.stderr, time.monotonic() - begin)


def wait_until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


def runs(pid: str) -> bool:
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


# -- command line ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a", [("a", None)]),
        ("a,b:4", [("a", None), ("b", 4)]),
        ("# all\na slots=2 # fast\n\nb:3\n", [("a", 2), ("b", 3)]),
        ("me@a,fe80::1", [("me@a", None), ("fe80::1", None)]),
    ],
)
def test_hosts_are_parsed(text: str, found: list[tuple[str, int | None]]) -> None:
    assert parse_hosts(text) == tuple(HostSlots(*each) for each in found)


@pytest.mark.parametrize("text", ["", "# nothing", "a:0", "a slots=many"])
def test_wrong_hosts_are_errors(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        parse_hosts(text)


def test_processes_are_shared_in_blocks() -> None:
    chosen = random.Random(0)
    for _ in range(300):
        slots = [chosen.choice([None, 1, 2, 5]) for _ in range(chosen.randint(1, 6))]
        processes = chosen.randint(1, 20)
        try:
            counts = share(processes, slots)
        except ValueError:
            assert None not in slots and sum(filter(None, slots)) < processes
            continue
        assert sum(counts) == processes and all(c >= 0 for c in counts)
        assert all(limit is None or count <= limit for limit, count in zip(slots, counts, strict=True))
        even = [count for limit, count in zip(slots, counts, strict=True) if limit is None]
        assert not even or max(even) - min(even) <= 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["train.py"], "-n"),
        (["-n", "0", "train.py"], "-n must be"),
        (["-n", "2", "--nnodes", "2", "train.py"], "--rdzv"),
        (["-n", "2", "--nnodes", "2", "--node-rank", "2", "--rdzv", "a", "train.py"], "--node-rank must be"),
        (["-n", "2", "--hosts", "a", "--hostfile", "b", "train.py"], "--hostfile"),
        (["-n", "2", "--hostfile", "/nonexistent", "train.py"], "/nonexistent"),
        (["-n", "2", "--rdzv", "a:b", "train.py"], "is not an address"),
        (["-n", "2", "--remote", "ssh", "train.py"], "{host}"),
        (["-n", "1", "--nnodes", "2", "--rdzv", "a", "train.py"], "at least --nnodes"),
    ],
)
def test_wrong_command_lines_say_what_must_hold(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments)
    assert ended.value.code == 2 and named in capsys.readouterr().err


def test_arguments_of_the_script_are_its_own() -> None:
    assert parse(["-n", "2", "train.py", "-n", "3", "--hosts", "a"]).command == ("train.py", "-n", "3", "--hosts", "a")
    assert parse(["-n", "2", "-m", "train", "-m", "x"]).command == ("-m", "train", "-m", "x")


def test_commands_for_hosts() -> None:
    words = ["env", "A=b c", "python"]
    assert remote_command(options.SSH, "me@h", words)[-4:] == ["me@h", "env", "'A=b c'", "python"]
    assert remote_command("ip netns exec {host}", "h", words) == ["ip", "netns", "exec", "h", *words]
    variables = {"HOME": "/root", "SSH_TTY": "x", "PMI_FD": "3", "WEFT_X": "1", "PYTHONPATH": "p"}
    assert variables_for_others(variables) == {"WEFT_X": "1", "PYTHONPATH": "p"}


def test_the_launcher_does_not_import_the_rest_of_weft() -> None:
    code = "import sys; sys.argv = ['-m', '--help']; sys.orig_argv = ['python', '-m', 'weft.launch', '--help']\n"
    code += "try:\n    import weft\nexcept SystemExit:\n    print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    modules = done.stdout.splitlines()[-1].split()
    assert "weft.launch.job" in modules
    assert not {"numpy", "weft.trace", "weft.ir", "weft.runtime", "weft.base.errors"} & set(modules)
    assert "weft.lax" in sys.modules and sys.modules["weft.launch"]  # and elsewhere `import weft` is whole


# -- lines -------------------------------------------------------------------------------------------------------------


def test_lines_do_not_depend_on_how_they_are_cut() -> None:
    chosen = random.Random(0)
    for _ in range(300):
        text = bytes(chosen.choice(b"ab \r\n") for _ in range(chosen.randint(0, 40)))
        whole: list[bytes] = []
        lines = Lines(whole.append)
        rest = text
        while rest:
            size = chosen.randint(1, len(rest))
            lines.feed(rest[:size])
            rest = rest[size:]
        lines.feed(b"")
        assert b"".join(whole) in (text, text + b"\n")
        assert all(re.fullmatch(rb"[^\r\n]*(\r\n|\r|\n)", line) for line in whole), whole
        assert whole == re.findall(rb"[^\r\n]*(?:\r\n|\r|\n)", b"".join(whole))


PIECES = """
import os, sys
for i in range(200):
    for piece in ("line", " ", str(i), " of ", os.environ["WEFT_PROCESS_ID"], "\\n"):
        sys.stdout.write(piece)
        sys.stderr.write(piece)
sys.stdout.write("last")
"""


def test_lines_stay_whole_behind_the_index_of_their_process(tmp_path: pathlib.Path) -> None:
    done = launch(tmp_path, PIECES, "--log-dir", str(tmp_path / "logs"), count=3, PYTHONUNBUFFERED="1")
    assert done.code == 0, done.errors
    expected = sorted(f"[{r}] line {i} of {r}" for r in range(3) for i in range(200))
    assert sorted(done.out.splitlines()) == sorted([*expected, *(f"[{r}] last" for r in range(3))])
    assert sorted(line for line in done.errors.splitlines() if line.startswith("[")) == expected
    for rank in range(3):
        written = (tmp_path / "logs" / "start_0" / f"process_{rank}.out").read_text().splitlines()
        assert written == [*(f"line {i} of {rank}" for i in range(200)), "last"]
    assert launch(tmp_path, "print(1)", "--no-prefix", count=1).out == "1\n"


def test_the_first_process_reads_the_input_of_the_launcher(tmp_path: pathlib.Path) -> None:
    script = tmp_path / "reads.py"
    script.write_text("import sys; print(repr(sys.stdin.read()))")
    command = [*LAUNCH, "-n", "2", str(script)]
    done = subprocess.run(
        command, input="some text", env=environment(), cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert sorted(done.stdout.splitlines()) == ["[0] 'some text'", "[1] ''"]


# -- failures ----------------------------------------------------------------------------------------------------------

FAILS = """
import os, pathlib, signal, subprocess, sys, time
rank = os.environ["WEFT_PROCESS_ID"]
pathlib.Path(sys.argv[1], f"pid {rank}").write_text(str(os.getpid()))
if rank == "0":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    pathlib.Path(sys.argv[1], "pid of child").write_text(str(child.pid))
while len(list(pathlib.Path(sys.argv[1]).glob("pid *"))) < 3:
    time.sleep(0.01)
if rank == "1":
    FAILURE
HANGS
"""


@pytest.mark.parametrize(
    ("failure", "hangs", "code", "named"),
    [
        ("raise ValueError('no data')", "time.sleep(600)", 1, "ended with code 1: ValueError: no data; ending"),
        ("sys.exit(3)", "time.sleep(600)", 3, "ended with code 3; ending the other 1"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "time.sleep(600)", 137, "was killed by SIGKILL; ending"),
        ("os.abort()", "os.kill(os.getpid(), signal.SIGSTOP)", 134, "was killed by SIGABRT"),
        ("sys.exit(4)", "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)", 4, "ended with code 4"),
    ],
    ids=["raises", "exits", "killed", "stopped", "ignores"],
)
def test_the_failure_of_one_ends_all(failure: str, hangs: str, code: int, named: str, tmp_path: pathlib.Path) -> None:
    done = launch(tmp_path, FAILS.replace("FAILURE", failure).replace("HANGS", hangs), "--grace", "0.5")
    assert done.code == code, done.errors
    assert re.search(rf"weft.launch: process 1 \(host .*, pid \d+\) {named}", done.errors), done.errors
    wait_until(lambda: not any(runs(file.read_text()) for file in tmp_path.glob("pid *")), 20)


@needs_mpich
@pytest.mark.parametrize("how", ["raise FileNotFoundError('no data on this host')", "sys.exit(0)"])
def test_a_process_that_ends_before_it_joins_is_named_to_those_that_wait(how: str, tmp_path: pathlib.Path) -> None:
    script = f"import os, sys\nif os.environ['WEFT_PROCESS_ID'] == '1':\n    {how}\n"
    script += "import weft\nweft.distributed.initialize()\n"
    done = launch(tmp_path, script, "--grace", "60")
    assert done.code == 1 and done.seconds < 60
    assert re.search(r"\[0\] weft.errors.ProcessFailureError: Process 1 \(host .*, pid \d+\)", done.errors), done.errors


@needs_mpich
def test_programs_that_use_mpi_without_weft_find_each_other(tmp_path: pathlib.Path) -> None:
    script = "from mpi4py import MPI\nc = MPI.COMM_WORLD\nprint(c.rank, c.size, c.allreduce(c.rank + 1))"
    done = launch(tmp_path, script)
    assert done.code == 0, done.errors
    assert sorted(done.out.splitlines()) == ["[0] 0 2 3", "[1] 1 2 3"]


def test_restarts_are_counted_and_keep_the_folder_of_the_job(tmp_path: pathlib.Path) -> None:
    script = (
        "import os, pathlib, sys\n"
        "count, folder = os.environ['WEFT_RESTART_COUNT'], pathlib.Path(os.environ['WEFT_JOB_DIRECTORY'])\n"
        "(folder / count).write_text('')\n"
        "print(count, sorted(p.name for p in folder.iterdir()), folder)\n"
        "sys.exit(0 if count == '2' else 5)\n"
    )
    done = launch(tmp_path, script, "--max-restarts", "3", "--log-dir", str(tmp_path / "logs"), count=1)
    assert done.code == 0 and "starting again, 1 restarts left" in done.errors
    lines = done.out.splitlines()
    assert [line.partition(" /")[0] for line in lines] == ["[0] 0 ['0']", "[0] 1 ['0', '1']", "[0] 2 ['0', '1', '2']"]
    assert not os.path.exists(lines[0].rpartition(" ")[2])
    assert (tmp_path / "logs" / "start_2" / "process_0.out").read_text().startswith("2 ")
    assert launch(tmp_path, "import sys; sys.exit(5)", "--max-restarts", "1", count=1).code == 5


# -- signals -----------------------------------------------------------------------------------------------------------

WAITS = """
import os, pathlib, signal, sys, time
def end(number, frame):
    pathlib.Path(sys.argv[1], f"told {os.environ['WEFT_PROCESS_ID']}").write_text(str(number))
    sys.exit(9)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, end)
pathlib.Path(sys.argv[1], f"pid {os.environ['WEFT_PROCESS_ID']}").write_text(str(os.getpid()))
while True:
    time.sleep(0.05)
"""


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_signals_reach_all_once_and_nothing_is_started_again(by: signal.Signals, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "waits.py"
    script.write_text(WAITS)
    command = [*LAUNCH, "-n", "2", "--restarts", "2", str(script), str(tmp_path)]
    with subprocess.Popen(
        command,
        env=environment(),
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        wait_until(lambda: sum(bool(p.read_text()) for p in tmp_path.glob("pid *")) == 2)
        process.send_signal(by)
    assert process.returncode == (-9 if by == signal.SIGKILL else 9)
    if by != signal.SIGKILL:
        assert {p.name: p.read_text() for p in tmp_path.glob("told *")} == {f"told {r}": str(int(by)) for r in range(2)}
    wait_until(lambda: not any(runs(file.read_text()) for file in tmp_path.glob("pid *")), 20)


# -- hosts -------------------------------------------------------------------------------------------------------------


def on_hosts(kind: str, both: Sequence[Host], arguments: Sequence[str]) -> list[subprocess.Popen[str]]:
    """Start launchers: one that reaches all hosts, or one on each host."""
    commands = []
    if kind == "hosts":
        names = ",".join(host.name for host in both)
        reach = ["--hosts", names, "--remote", "ip netns exec {host}", "--rdzv", f"{both[0].address}:0"]
        commands.append(both[0].command(*LAUNCH, *reach, *arguments))
    for i, host in enumerate(both if kind == "nodes" else ()):
        where = ["--nnodes", str(len(both)), "--node-rank", str(i), "--rdzv", f"{both[0].address}:29400"]
        commands.append(host.command(*LAUNCH, *where, *arguments))
    return [
        subprocess.Popen(c, env=environment(), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for c in commands
    ]


def test_a_host_is_reached_by_ssh(tmp_path: pathlib.Path) -> None:
    """By a stand-in for ssh, which passes its words to a shell as ssh does."""
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nshift 4; [ "$1" = me@far ] || exit 9; shift\necho Welcome!\nexec sh -c "$*"\n')
    ssh.chmod(0o755)
    script = tmp_path / "script.py"
    script.write_text("import os, sys\nprint(os.environ['WEFT_PROCESS_ID'], sys.argv[1:], os.environ['SAID'])")
    folder = tmp_path / "a b $c"
    folder.symlink_to(ROOT)
    remote = f"{ssh} -o BatchMode=yes -o ConnectTimeout=15 {{host}}"
    command = [*LAUNCH, "-n", "2", "--hosts", "me@far", "--remote", remote, "--rdzv", "127.0.0.1:0"]
    settings = environment(SAID='x "y" $z') | {"PYTHONPATH": str(folder)}
    done = subprocess.run(
        [*command, str(script), "a 'b'", "$HOME"], env=settings, cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"""[{r}] {r} ["a 'b'", '$HOME'] x "y" $z""" for r in range(2)]
    assert "weft.launch: me@far: Welcome!" in done.stderr
    wrong = subprocess.run(
        [*LAUNCH, "-n", "1", "--hosts", "else", "--remote", remote, "--rdzv", "127.0.0.1:0", str(script)],
        env=settings,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
    )
    assert wrong.returncode == 255 and "the launcher of else has ended" in wrong.stderr


@pytest.mark.timing
def test_the_launcher_starts_processes_at_once(tmp_path: pathlib.Path) -> None:
    (tmp_path / "script.py").write_text("pass")
    seconds = []
    for _ in range(10):
        begin = os.times()
        subprocess.run([*LAUNCH, "-n", "1", str(tmp_path / "script.py")], env=environment(), cwd=ROOT, check=True)
        end = os.times()
        seconds.append(end.children_user + end.children_system - begin.children_user - begin.children_system)
    assert min(seconds) < 0.3, seconds  # less than half of `import weft`


@needs_hosts
@pytest.mark.parametrize("kind", ["hosts", "nodes"])
def test_processes_of_several_hosts_start_and_fail_together(kind: str, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys, time\n"
        "print(os.environ['WEFT_PROCESS_ID'], os.environ['WEFT_LOCAL_PROCESS_ID'], sys.argv[1:], flush=True)\n"
        "if os.environ['WEFT_PROCESS_ID'] == '3': time.sleep(0.3); raise ValueError('bad')\n"
        "time.sleep(600)\n"
    )
    with hosts(2) as both:
        arguments = ["-n", "4", "--grace", "0.2", str(script), "a b", "$HOME"]
        running = on_hosts(kind, both, arguments)
        results = [(*process.communicate(timeout=60), process.returncode) for process in running]
    assert all(code == 1 for _, _, code in results), results
    out = "".join(text for text, _, _ in results).splitlines()
    assert sorted(out) == [f"[{rank}] {rank} {rank % 2} ['a b', '$HOME']" for rank in range(4)]
    errors = "".join(text for _, text, _ in results)
    assert re.search(r"weft.launch: process 3 \(host .*\) ended with code 1: ValueError: bad", errors), errors


@needs_mpich
@needs_hosts
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hosts", "nodes"])
def test_processes_of_several_hosts_join(kind: str, tmp_path: pathlib.Path) -> None:
    with hosts(2) as both:
        running = on_hosts(kind, both, ["-n", "4", "-d", "2", str(SCRIPTS / "joining.py"), str(tmp_path)])
        results = [(*process.communicate(timeout=120), process.returncode) for process in running]
    assert all(code == 0 for _, _, code in results), results
    assert {p.name for p in tmp_path.glob("sum *")} == {f"sum 36.0 in {rank} of 4" for rank in range(4)}


@needs_hosts
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hosts", "nodes"])
def test_a_cut_network_ends_the_launchers_and_processes_of_both_sides(kind: str, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "waits.py"
    script.write_text(WAITS)
    with hosts(2) as both:
        if kind == "hosts":  # the command that reaches a host would not notice the cut of a namespace
            both[1].set_link("down")
            running = on_hosts("nodes", both, ["-n", "2", "--timeout", "3", str(script), str(tmp_path)])
            texts = [process.communicate(timeout=60)[1] for process in running]
            assert "node 1 did not connect" in texts[0] and "no launcher answers" in texts[1]
            return
        running = on_hosts(kind, both, ["-n", "2", "--grace", "1", str(script), str(tmp_path)])
        wait_until(lambda: sum(bool(p.read_text()) for p in tmp_path.glob("pid *")) == 2)
        both[1].set_link("down")
        begin = time.monotonic()
        texts = [process.communicate(timeout=60)[1] for process in running]
        assert time.monotonic() - begin < 40
    assert "has not been heard of" in texts[0] and "has not been heard of" in texts[1], texts
    assert not any(runs(file.read_text()) for file in tmp_path.glob("pid *"))

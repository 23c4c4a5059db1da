"""Machine code on disk: the next process finds it, and never reads partial or wrong files."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from weft.base import settings
from weft.compiler import cache
from weft.compiler.target.cpu import objects
from weft.compiler.target.cpu.link import Object, Tier
from weft.compiler.target.cpu.targets import host, host_scalar

ROOT = pathlib.Path(__file__).parents[2]
OBJECT = Object(b"\x7fELF and so on" * 50, ("kernel_a", "kernel_b"), ("malloc",))


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    path = tmp_path / "objects"
    with settings.compilation_cache_dir(str(path)):
        yield path


def test_what_was_stored_is_found(folder: pathlib.Path) -> None:
    key = cache.make_key("text", host(), Tier.LIGHT.name)
    assert objects.load(key) is None
    objects.store(key, OBJECT)
    assert objects.load(key) == OBJECT
    assert [p.name for p in folder.iterdir()] == [f"{key}.o"]


def test_kernels_are_found_by_name(folder: pathlib.Path) -> None:
    objects.store_kernels(OBJECT, host(), Tier.QUICK)
    ((result, names),) = objects.load_kernels(["kernel_b", "kernel_c"], host(), Tier.QUICK)
    assert result == OBJECT and names == ["kernel_b"]
    assert not list(objects.load_kernels(["kernel_b"], host(), Tier.LIGHT))
    assert not list(objects.load_kernels(["kernel_b"], host_scalar(), Tier.QUICK))


def test_names_depend_on_machine_tier_and_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {cache.make_key("text", m, t.name) for m in (host(), host_scalar()) for t in (Tier.QUICK, Tier.FULL)}
    monkeypatch.setattr(cache, "state_of_compiler", lambda: "another")
    names.add(cache.make_key("text", host(), Tier.QUICK.name))
    assert len(names) == 5


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_file_is_ignored(folder: pathlib.Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    key = cache.make_key("text", host(), Tier.LIGHT.name)
    objects.store(key, OBJECT)
    path = folder / f"{key}.o"
    content = bytearray(path.read_bytes())
    if seed % 2:
        content[int(rng.integers(len(content)))] ^= 1 << int(rng.integers(8))
    else:
        del content[int(rng.integers(len(content))) :]
    path.write_bytes(bytes(content))
    assert objects.load(key) is None
    assert not path.exists()


def put_folder(path: pathlib.Path) -> None:
    path.mkdir()


def put_pipe(path: pathlib.Path) -> None:
    os.mkfifo(path)


def put_endless(path: pathlib.Path) -> None:
    path.symlink_to("/dev/zero")


def put_link_to_itself(path: pathlib.Path) -> None:
    path.symlink_to(path.name)


def put_link_to_a_pipe(path: pathlib.Path) -> None:
    os.mkfifo(f"{path}.pipe")
    path.symlink_to(f"{path}.pipe")


def put_huge(path: pathlib.Path) -> None:
    with open(path, "wb") as file:
        file.truncate(cache.MAX_BYTES + 1)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
@pytest.mark.parametrize(
    "put",
    [put_folder, put_pipe, put_endless, put_link_to_itself, put_link_to_a_pipe, put_huge],
    ids=lambda f: f.__name__,
)
def test_a_path_that_is_not_a_file_is_ignored(folder: pathlib.Path, put: Callable[[pathlib.Path], None]) -> None:
    assert cache.folder() == folder
    key = cache.make_key("text", host(), Tier.LIGHT.name)
    put(folder / f"{key}.o")
    put(folder / f"{key}.s")
    found: list[object] = []

    def read() -> None:
        with settings.compilation_cache_dir(str(folder)):  # settings are a thread's own
            found.extend([objects.load(key), cache.load_schedule(key)])

    work = threading.Thread(target=read, daemon=True)
    work.start()
    work.join(60)
    assert found == [None, None]
    objects.store(key, OBJECT)
    cache.store_schedule(key, "plan")
    cache.prune(folder, cache.MAX_BYTES)
    if put is not put_folder:
        assert objects.load(key) == OBJECT
        assert cache.load_schedule(key) == "plan" or put is put_link_to_itself


def test_a_renamed_file_is_ignored(folder: pathlib.Path) -> None:
    one, other = (cache.make_key(text, host(), Tier.LIGHT.name) for text in ("one", "other"))
    objects.store(one, OBJECT)
    os.rename(folder / f"{one}.o", folder / f"{other}.o")
    assert objects.load(other) is None


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="permissions of POSIX")
def test_a_folder_that_others_can_write_to_is_not_used(tmp_path: pathlib.Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with settings.compilation_cache_dir(str(shared)):
        assert cache.folder() is None
        objects.store("key", OBJECT)
    assert not list(shared.iterdir())


def test_the_least_recently_used_go_first(folder: pathlib.Path) -> None:
    for i in range(4):
        objects.store(f"key{i}", OBJECT)
        os.utime(folder / f"key{i}.o", (1000 + i, 1000 + i))
    left = folder / "new-left-by-a-killed-process"
    left.write_bytes(b"half")
    os.utime(left, (1, 1))
    assert objects.load("key0") is not None  # used now, so it stays
    size = cache.BLOCK  # that is what each of them takes on the disk
    assert (folder / "key0.o").stat().st_size < size
    with pytest.MonkeyPatch.context() as patch:
        # The process ends while the folder, which may have many files, is measured: it does not wait for that.
        patch.setattr(cache, "_ending", threading.Event())
        cache.stop_pruning()
        cache.prune(folder, 2 * size)
        assert len(list(folder.iterdir())) == 5
    cache.prune(folder, 2 * size)
    assert sorted(p.name for p in folder.iterdir()) == ["key0.o", "key3.o"]


PROGRAM = """
import sys, time
import numpy as np
import weft, weft.numpy as wnp
from weft.compiler.target.cpu import link
made = []
make = link._object
link._object = lambda *args, **options: made.append(args[0]) or make(*args, **options)
x = np.arange(64, dtype=np.float32).reshape(8, 8)
print(float(weft.jit(lambda x: wnp.tanh(x @ x).sum() + wnp.sort(x, 0)[0, 0])(x)), len(made))
"""


def run(folder: pathlib.Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "WEFT_COMPILATION_CACHE_DIR": str(folder)}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE
    )
    return process


def outcome(process: subprocess.Popen[str]) -> tuple[float, int]:
    text, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    value, count = text.split()
    return float(value), int(count)


def test_a_second_process_compiles_nothing(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "objects"
    value, compiled = outcome(run(folder))
    again, nothing = outcome(run(folder))
    assert compiled > 0 and nothing == 0 and again == value


def test_two_processes_share_a_folder(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "objects"
    first, second = run(folder), run(folder)
    assert outcome(first)[0] == outcome(second)[0]
    assert outcome(run(folder))[1] == 0


def test_a_process_may_be_killed_at_any_time(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "objects"
    for delay in (0.3, 0.6, 0.9):
        process = run(folder)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
        process.communicate()
    value, _ = outcome(run(folder))
    assert np.isfinite(value)
    assert outcome(run(folder)) == (value, 0)


DYING = """
import os, signal, sys
from weft.compiler import cache
from weft.compiler.target.cpu import objects
moment, count = sys.argv[1], int(sys.argv[2])
seen = 0
def due():
    global seen
    seen += 1
    return seen == count
def die():
    os.kill(os.getpid(), signal.SIGKILL)
replace, fdopen = os.replace, os.fdopen
class Half:
    def __init__(self, file): self.file = file
    def __enter__(self): return self
    def __exit__(self, *error): self.file.close()
    def write(self, content):
        if moment == "half" and due():
            self.file.write(content[: len(content) // 2])
            self.file.flush()
            die()
        self.file.write(content)
def moved(source, target):
    if moment == "before" and due():
        die()
    replace(source, target)
    if moment == "after" and due():
        die()
cache.os.replace = moved
cache.os.fdopen = lambda handle, mode: Half(fdopen(handle, mode))
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="signals of POSIX")
@pytest.mark.parametrize("moment", ["half", "before", "after"])
@pytest.mark.parametrize("count", [1, 4])
def test_a_process_killed_while_it_writes_leaves_nothing_wrong(tmp_path: pathlib.Path, moment: str, count: int) -> None:
    folder = tmp_path / "objects"
    environment = {**os.environ, "WEFT_COMPILATION_CACHE_DIR": str(folder)}
    command = [sys.executable, "-c", DYING + PROGRAM, moment, str(count)]
    died = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=120, check=False)
    assert died.returncode == -signal.SIGKILL
    left = sorted(p.name for p in folder.iterdir())
    assert [name.startswith("new-") for name in left].count(True) == (moment != "after")
    value, _ = outcome(run(folder))
    assert np.isfinite(value) and outcome(run(folder)) == (value, 0)

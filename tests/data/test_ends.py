"""Worker processes end with their loader's process, however that ends; and not with processes that it has forked."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = """
import os, sys, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from weft.data import Loader

loader = Loader(range(100), 2, transforms=[lambda i: os.getpid()], workers=2, worker_type="fork")
batches = iter(loader)
workers = {int(next(batches)[0]) for _ in range(4)}
child = os.fork()
if not child:
    sys.exit(0)  # as any program ends
assert os.waitpid(child, 0)[1] == 0
assert {int(next(batches)[0]) for _ in range(20)} == workers
print(*workers, flush=True)
time.sleep(60)
"""


def is_alive(process: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_workers_end_with_a_killed_process() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", SCRIPT], env=environment, stdout=subprocess.PIPE, text=True) as script:
        assert script.stdout is not None
        workers = [int(word) for word in script.stdout.readline().split()]
        assert len(workers) == 2 and all(is_alive(worker) for worker in workers)
        script.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while any(is_alive(worker) for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(is_alive(worker) for worker in workers)

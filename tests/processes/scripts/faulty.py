"""Processes that step together until one of them fails. Arguments: the fault, the processes that have it ("1" or
"0,2"), and a folder, into which each process writes its pid, the time of its fault, and its end."""

from __future__ import annotations

import ctypes
import os
import pathlib
import resource
import signal
import sys
import threading
import time
from typing import Any, NoReturn

WHAT, RANKS, FOLDER = sys.argv[1], {int(rank) for rank in sys.argv[2].split(",")}, pathlib.Path(sys.argv[3])
# The index of this process before it has joined the others.
INDEX = next(
    (
        int(os.environ[name])
        for name in ("WEFT_PROCESS_ID", "PMI_RANK", "RANK", "JAX_PROCESS_ID", "OMPI_COMM_WORLD_RANK")
        if name in os.environ
    ),
    0,
)
STEPS, FAULT = 60, 20
with (FOLDER / "pids").open("a") as pids:
    pids.write(f"{os.readlink('/proc/self')}\n")  # in the namespace of the test


def note(what: str) -> None:
    """Write the time of an event of this process."""
    with (FOLDER / f"{what}.{INDEX}").open("w") as file:
        file.write(f"{time.time()}\n")


def is_faulty(when: str) -> bool:
    """Return whether this process fails, at this point of the program."""
    return INDEX in RANKS and WHAT.startswith(when)


def die(by: int = signal.SIGKILL) -> None:
    note("fault")
    os.kill(os.getpid(), by)


def hold_lock() -> NoReturn:
    """Keep Python's lock in C code."""
    note("fault")
    ctypes.PyDLL(None).sleep(600)
    raise AssertionError("it was ended before")


if is_faulty("early"):
    match WHAT:
        case "early_kill":
            die()
        case "early_raise":
            note("fault")
            raise FileNotFoundError("no data on this host")
        case "early_exit":
            note("fault")
            sys.exit(0)
        case "early_stop":
            die(signal.SIGSTOP)

import numpy as np  # noqa: E402

import weft  # noqa: E402
from weft import checkpointing, lax  # noqa: E402
from weft.checkpointing import CheckpointManager, tensor_file  # noqa: E402
from weft.errors import CheckpointWriteError  # noqa: E402
from weft.experimental import multihost_utils  # noqa: E402
from weft.sharding import AxisType, NamedSharding, PartitionSpec as P  # noqa: E402

if is_faulty("joining"):
    # While the others join: the versions are compared when MPI has started, and before control threads run.
    weft.distributed._versions = lambda transport: str(die())  # type: ignore[assignment]
weft.distributed.initialize(
    initialization_timeout=int(os.environ.get("JOIN", "60")),
    heartbeat_timeout_seconds=int(os.environ.get("HEARTBEAT", "100")),
    shutdown_timeout_seconds=60,
)
assert weft.process_index() == INDEX, "the variables of the launcher are others"
COUNT = weft.device_count()
MESH = weft.make_mesh((COUNT,), ("x",), (AxisType.Auto,))
SPLIT = NamedSharding(MESH, P("x"))


def put(columns: int = 3) -> Any:
    return weft.make_array_from_callback((COUNT, columns), SPLIT, lambda i: np.ones((COUNT, columns), np.float32)[i])


def on_mesh(f: Any) -> Any:
    return weft.jit(weft.shard_map(f, mesh=MESH, in_specs=P("x"), out_specs=P()))


def summed(a: Any) -> Any:
    return lax.psum(a, "x")


def doubled(a: Any) -> Any:
    return lax.psum(a * 2, "x")


total, twice = on_mesh(summed), on_mesh(doubled)


def step(columns: int = 3) -> None:
    total(put(columns)).block_until_ready()
    time.sleep(0.01)


def lose_time() -> None:
    until = time.monotonic() + 600
    while time.monotonic() < until:
        sum(range(1000))


def stop_for(seconds: float) -> None:
    """Stop this process, which another one continues."""
    if os.fork() == 0:
        time.sleep(seconds)
        os.kill(os.getppid(), signal.SIGCONT)
        os._exit(0)
    die(signal.SIGSTOP)


def step_to_fault() -> None:
    """Fail in the middle of the steps; return if that does not end this process."""
    match WHAT:
        case "kill":
            die()
        case "segfault":
            die(signal.SIGSEGV)
        case "sigabrt":
            die(signal.SIGABRT)
        case "sigterm":
            die(signal.SIGTERM)
        case "sigint":
            signal.signal(signal.SIGINT, signal.default_int_handler)  # shells ignore it in the background
            die(signal.SIGINT)
        case "os_exit":
            note("fault")
            os._exit(4)
        case "exit_3" | "exit_0":
            note("fault")
            sys.exit(int(WHAT[-1]))
        case "raise":
            note("fault")
            raise ValueError("no more data")
        case "memory":
            note("fault")
            raise MemoryError("no memory for a batch")
        case "thread_kill":
            threading.Timer(0.05, die).start()
        case "stop":
            die(signal.SIGSTOP)
        case "stop_waiting":  # the last page of a process that is stopped then says that it waits
            threading.Timer(0.5, die, (signal.SIGSTOP,)).start()
        case "stop_and_go":
            stop_for(13)
        case "lock":
            hold_lock()
        case "sleep":
            note("fault")
            time.sleep(600)
        case "spin":
            note("fault")
            lose_time()
        case "shape":
            note("fault")
            step(5)
        case "program":
            note("fault")
            twice(put()).block_until_ready()
        case "setting":
            note("fault")
            with weft.enable_x64(True):
                step()
        case "kind":
            note("fault")
            multihost_utils.sync_global_devices("end")


def limit_files() -> None:
    """Let this process write at most a megabyte to a file."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))


def state(i: int) -> Any:
    rows = np.arange(COUNT << 19, dtype=np.float32).reshape(COUNT, -1) + i
    return {"w": weft.make_array_from_callback(rows.shape, SPLIT, lambda at: rows[at]), "step": i}


def save_steps() -> None:
    """Save the state in each step, with a fault in the third save."""
    faulty = INDEX in RANKS
    with CheckpointManager(
        FOLDER / "steps", max_to_keep=2, enable_async_checkpointing="async" in WHAT, layout=LAYOUT
    ) as manager:
        for i in range(6):
            if i == 2 and faulty:
                match WHAT.removeprefix("save_").removesuffix("_async").removesuffix("_orbax"):
                    case "limited":
                        note("fault")
                        limit_files()
                    case "index":
                        note("fault")

                        def fail(path: str, before: Any = tensor_file.replacing) -> Any:
                            if path.endswith("index.json"):
                                raise OSError(28, "No space left on device")
                            return before(path)

                        checkpointing.saving.tensor_file.replacing = fail  # type: ignore[attr-defined]
                    case "kill":
                        threading.Timer(float(os.environ.get("DELAY", "0.02")), die).start()
                    case "stop":
                        threading.Timer(0.02, die, (signal.SIGSTOP,)).start()
                    case "skip":
                        note("fault")
                        time.sleep(600)
                    case "leave":
                        note("fault")
                        sys.exit(0)
            step()
            if i == 2:
                note("ready")
            manager.save(i, {"state": state(i)} if LAYOUT == "orbax" else state(i))
    manager.wait_until_finished()


LAYOUT: Any = "orbax" if "orbax" in WHAT else "weft"
step()
note("joined")
if WHAT.startswith("save"):
    try:
        save_steps()
    except CheckpointWriteError as error:
        print(f"process {INDEX} is told: {error}", file=sys.stderr, flush=True)
        raise
else:
    end = time.monotonic() + (12 if WHAT == "cut_short" else 600)
    for i in range(STEPS if not WHAT.startswith("cut") else 1_000_000):
        if i == FAULT:
            note("ready")
            time.sleep(1.5 if WHAT == "cut_idle" else 0.0)
        # All processes must do the same number of steps.
        if WHAT == "cut_short" and i > FAULT and multihost_utils.broadcast_one_to_all(time.monotonic() > end):
            break
        if i == FAULT and INDEX in RANKS:
            step_to_fault()
        if is_faulty("idle") and i == FAULT:
            die()
        if i == FAULT and (WHAT == "idle_kill" or (WHAT == "stop_waiting" and INDEX not in RANKS)):
            time.sleep(1.5)
        step()
    if WHAT == "end_stop" and INDEX in RANKS:
        die(signal.SIGSTOP)
note("end")

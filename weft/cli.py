"""The command `weft` (also `python -m weft`): what is installed, running programs, their pages and profiles, caches.

weft info                          versions, devices, libraries, the cache
weft run [--as-jax] train.py ...   run a script; with --as-jax under JAX's name
weft launch -n 4 train.py ...      run a script in several processes
weft explain train.py:step         write the page about a jitted function
weft profile train.py ...          run a script and print where its time went
weft bench                         measure this machine: operations, bytes, calls
weft cache [list|clear]            show or delete machine code on disk
weft models chat FOLDER            use a pre-trained model
weft completion bash|zsh           print completions for a shell
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import runpy
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft.numpy as wnp
from weft.api.devices import devices, local_devices, process_count
from weft.api.jit import jit
from weft.base.settings import config
from weft.compiler import cache
from weft.profiler import profile

# Packages that Weft needs or can use, by what they bring.
REQUIRED = ("numpy", "scipy", "ml_dtypes", "opt_einsum", "llvmlite")
OPTIONAL = {
    "h5py": "Keras files (.h5, .keras)",
    "mpi4py": "many processes",
    "nvidia-cublas": "matrix products on NVIDIA GPUs",
    "nvidia-cudnn-cu13": "convolutions and attention on NVIDIA GPUs",
    "onnx": "models of ONNX",
    "ziglang": "a linker for libraries",
    "tokenizers": "texts for pre-trained models",
    "matplotlib": "pictures",
}
# Commands that are modules of their own.
MODULES = {"launch": "weft.launch", "explain": "weft.explain", "models": "weft.models"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: the words after `weft`; those of the process if None.

    Returns:
        The exit code: 0, 2 for a wrong command line, or that of the program that was run.

    >>> from weft.cli import main
    >>> main(["completion", "zsh"])  # doctest: +ELLIPSIS
    autoload ...
    0
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] in MODULES:
        return run_module(MODULES[words[0]], words[1:])
    options = make_parser().parse_args(words)
    command: Callable[[argparse.Namespace], int] = options.command
    return command(options)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="weft", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"weft {sys.modules['weft'].__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        found = commands.add_parser(name, help=text, description=text)
        found.set_defaults(command=command)
        return found

    add("info", show_info, "print versions, devices, libraries and the cache")
    for name, command, text in (
        ("run", run_script, "run a script"),
        ("profile", profile_script, "run a script and print where its time went"),
    ):
        found = add(name, command, text)
        found.add_argument("script", help="the script")
        found.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")
        if name == "run":
            found.add_argument(
                "--as-jax", action="store_true", help="under the name of JAX, for programs written for it"
            )
        else:
            found.add_argument("--rows", type=int, default=20, help="rows of each table")
    add("bench", measure_machine, "measure this machine: operations, bytes, calls")
    found = add("cache", manage_cache, "show or delete machine code on disk")
    found.add_argument("action", nargs="?", default="list", choices=["list", "clear", "path"])
    found = add("completion", print_completion, "print completions for a shell")
    found.add_argument("shell", choices=["bash", "zsh"])
    for name, module in MODULES.items():
        commands.add_parser(name, help=f"python -m {module}; weft {name} --help", add_help=False)
    return parser


def run_module(module: str, arguments: Sequence[str]) -> int:
    """Replace this process by a module's, whose start needs nothing of this one."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])


def show_info(options: argparse.Namespace) -> int:
    """Print what a question about an installation needs."""
    rows = [("weft", sys.modules["weft"].__version__), ("python", platform.python_version())]
    rows += [(name, version(name) or "missing") for name in REQUIRED]
    rows.append(("platform", f"{platform.system()} {platform.release()} {platform.machine()}"))
    found = local_devices()
    rows.append(("devices", f"{len(found)} {found[0].platform}: {found[0].device_kind}"))
    rows.append(("processes", str(process_count())))
    folder = cache.folder()
    size = "off" if folder is None else f"{folder}, {_size_text(sum(file_sizes()))}"
    rows.append(("cache", size))
    changed = sorted(name for name in os.environ if name.startswith("WEFT_"))
    rows.append(("settings", ", ".join(f"{name}={os.environ[name]}" for name in changed) or "defaults"))
    for name, text in rows:
        print(f"{name:12} {text}")
    print("\noptional packages")
    for name, purpose in OPTIONAL.items():
        print(f"{name:20} {version(name) or '-':12} {purpose}")
    return 0


def version(package: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def run_script(options: argparse.Namespace) -> int:
    """Run a script as Python does, or under the name of JAX."""
    if options.as_jax:
        return run_module("weft.as_jax", [options.script, *options.arguments])
    return run_path(options)


def profile_script(options: argparse.Namespace) -> int:
    """Run a script and print where its time went, also if it fails."""
    with profile(limit=options.rows):
        return run_path(options)


def run_path(options: argparse.Namespace) -> int:
    """Run a script in this process and return its exit code."""
    if not os.path.exists(options.script):
        print(f"weft: there is no file {options.script}", file=sys.stderr)
        return 2
    sys.argv[:] = [options.script, *options.arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(options.script))
    try:
        runpy.run_path(options.script, run_name="__main__")
    except SystemExit as stopped:
        if isinstance(stopped.code, str):
            print(stopped.code, file=sys.stderr)
            return 1
        return int(stopped.code or 0)
    return 0


def measure_machine(options: argparse.Namespace) -> int:
    """Print how fast this machine computes, copies and calls."""
    print(f"{devices()[0].device_kind}, {config.num_threads or 'all'} threads")
    side = 1024
    a, x = wnp.ones((side, side)), wnp.ones(1 << 22)
    matmul, add, call = jit(lambda a: a @ a), jit(lambda x: x + 1), jit(lambda x: x * 2)
    small = wnp.ones(8)
    print(f"{'matrix product of 1024^2':32} {2 * side**3 / seconds(matmul, a) / 1e9:8.0f} GFLOP/s")
    print(f"{'x + 1 of 4M floats':32} {2 * x.nbytes / seconds(add, x) / 1e9:8.1f} GB/s")
    print(f"{'sort of 1M floats':32} {1e6 / seconds(jit(wnp.sort), wnp.sin(x[: 10**6])) / 1e6:8.1f} M/s")
    print(f"{'call of a jitted function':32} {seconds(call, small) * 1e6:8.1f} us")
    begin = time.perf_counter()
    jit(lambda x: wnp.tanh(wnp.sin(x) @ x.T) * float(np.pi + begin % 1))(wnp.ones((48, 48))).block_until_ready()
    print(f"{'first call of a new function':32} {(time.perf_counter() - begin) * 1e3:8.1f} ms")
    return 0


def seconds(function: Callable[..., Any], *arguments: Any) -> float:
    """Return the least time of a call within half a second."""
    least, end = float("inf"), time.perf_counter() + 0.5
    while time.perf_counter() < end:
        begin = time.perf_counter()
        function(*arguments).block_until_ready()
        least = min(least, time.perf_counter() - begin)
    return least


def file_sizes() -> list[int]:
    """Return the sizes of the files in the cache."""
    folder = cache.folder()
    return [] if folder is None else [entry.stat().st_size for entry in os.scandir(folder) if entry.is_file()]


def manage_cache(options: argparse.Namespace) -> int:
    """Show the cache of machine code, delete its files, or print its folder."""
    folder = cache.folder()
    if folder is None:
        print("weft: the cache is off, or its folder cannot be used", file=sys.stderr)
        return 1
    if options.action == "path":
        print(folder)
        return 0
    sizes = file_sizes()
    print(f"{folder}: {len(sizes)} files, {_size_text(sum(sizes))} of at most {_size_text(cache.MAX_BYTES)}")
    if options.action == "clear":
        for entry in list(os.scandir(folder)):
            if entry.is_file():
                os.unlink(entry.path)
        print("deleted")
    return 0


def print_completion(options: argparse.Namespace) -> int:
    """Print a function that completes commands, and files after them."""
    words = " ".join(["info", "run", "profile", "bench", "cache", "completion", *MODULES])
    if options.shell == "zsh":
        print("autoload -U bashcompinit && bashcompinit")
    print(f"""_weft() {{
    local word=${{COMP_WORDS[COMP_CWORD]}}
    if [ "$COMP_CWORD" = 1 ]; then COMPREPLY=($(compgen -W "{words}" -- "$word"))
    elif [ "${{COMP_WORDS[1]}}" = cache ]; then COMPREPLY=($(compgen -W "list clear path" -- "$word"))
    else COMPREPLY=($(compgen -f -- "$word")); fi
}}
complete -F _weft weft""")
    return 0


def _size_text(size: float) -> str:
    return f"{size / 2**20:.1f} MB"

"""Plans of cuDNN on disk. Compiling the engine of a plan takes half a second; the heuristics and measurements take some
hundredths of a second for each call."""

from __future__ import annotations

from collections.abc import Callable

from weft.compiler import cache
from weft.compiler.target.target import ANY
from weft.runtime.cuda.libraries.calls import LibraryCalls
from weft.runtime.cuda.libraries.cudnn import Cudnn, CudnnError, Plan

SUFFIX, MAGIC = ".n", b"weft cudnn plan 1\n"


def load_plan(calls: LibraryCalls, lib: Cudnn, what: str, make: Callable[[], Plan]) -> Plan:
    """Read the plan for a description from disk, or make and store it."""
    plan = read_plan(calls, lib, what)
    if plan is None:
        plan = make()
        content = None if cache.folder() is None else plan.content()
        if content is not None:
            cache.write(_name(calls, lib, what), MAGIC, content)
    return plan


def read_plan(calls: LibraryCalls, lib: Cudnn, what: str) -> Plan | None:
    """Read the plan for a description from disk; return None if it is not there."""
    content = None if cache.folder() is None else cache.read(_name(calls, lib, what), MAGIC)
    if content is not None:
        try:
            return lib.deserialize_plan(content)
        except CudnnError:
            pass  # another library of the same version may reject it: it is made again
    return None


def _name(calls: LibraryCalls, lib: Cudnn, what: str) -> str:
    text = f"plan {cache.state_of_weft()} {lib.version} {what} on {calls.gpu}"
    return cache.make_key(text, ANY, calls.driver.code_version) + SUFFIX

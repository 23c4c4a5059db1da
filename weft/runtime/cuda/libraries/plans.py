"""Plans of cuDNN on disk. Engines that are compiled when a plan is made take half a second for it; asking for engines
and measuring those that are there takes some hundredths of a second for each call."""

from __future__ import annotations

from collections.abc import Callable

from weft.compiler import cache
from weft.compiler.target.target import ANY
from weft.runtime.cuda.libraries.calls import LibraryCalls
from weft.runtime.cuda.libraries.cudnn import Cudnn, CudnnError, Plan

SUFFIX, MAGIC = ".n", b"weft cudnn plan 1\n"


def stored_plan(calls: LibraryCalls, lib: Cudnn, what: str, make: Callable[[], Plan]) -> Plan:
    """The plan for what is described, as an earlier process stored it; else one that is made now, and stored."""
    plan = read_plan(calls, lib, what)
    if plan is None:
        plan = make()
        content = None if cache.folder() is None else plan.content()
        if content is not None:
            cache.write(_name(calls, lib, what), MAGIC, content)
    return plan


def read_plan(calls: LibraryCalls, lib: Cudnn, what: str) -> Plan | None:
    """The plan that was stored for what is described, if there is one."""
    content = None if cache.folder() is None else cache.read(_name(calls, lib, what), MAGIC)
    if content is not None:
        try:
            return lib.plan_of(content)
        except CudnnError:
            pass  # a library that calls itself the same does not accept it: it is made anew
    return None


def _name(calls: LibraryCalls, lib: Cudnn, what: str) -> str:
    text = f"plan {cache.state_of_weft()} {lib.version} {what} on {calls.gpu}"
    return cache.make_key(text, ANY, calls.driver.code_version) + SUFFIX

"""Plans of cuDNN on disk: engines that are compiled when a plan is made take half a second for it."""

from __future__ import annotations

from collections.abc import Callable

from weft.compiler import cache
from weft.compiler.target.target import ANY
from weft.runtime.cuda.libraries.calls import LibraryCalls
from weft.runtime.cuda.libraries.cudnn import Cudnn, CudnnError, Plan

SUFFIX, MAGIC = ".n", b"weft cudnn plan 1\n"


def stored_plan(calls: LibraryCalls, lib: Cudnn, what: str, make: Callable[[], Plan]) -> Plan:
    """The plan for what is described, as an earlier process stored it; else one that is made now, and stored."""
    if cache.folder() is None:
        return make()
    text = f"plan {cache.state_of_weft()} {lib.version} {what} on {calls.gpu}"
    name = cache.key_of(text, ANY, calls.driver.code_version) + SUFFIX
    content = cache.read(name, MAGIC)
    if content is not None:
        try:
            return lib.plan_of(content)
        except CudnnError:
            pass  # a library that calls itself the same does not accept it: it is made anew
    plan = make()
    content = plan.content()
    if content is not None:
        cache.write(name, MAGIC, content)
    return plan

"""How Python enters a program: `i64 weft_enter(ptr code, ptr words, i64 given, i64 all)` puts the registers on the
stack, the first `given` of them from `words`, and runs the machine. The caller's words are only read, so they can be a
bytes object."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

from weft.compiler.target.cpu import cache, link, machine
from weft.compiler.target.cpu.features import host
from weft.compiler.target.cpu.link import Tier
from weft.compiler.target.llvm import Module, Parameter, constant, i64, ptr


def text(triple: str) -> str:
    """The module with `weft_enter`; it needs `weft_machine`."""
    module = Module(triple, vector_bits=128)
    module.declare("weft_machine", i64, [ptr, ptr])
    parameters = [Parameter("code", ptr), Parameter("words", ptr), Parameter("given", i64), Parameter("all", i64)]
    f = module.function("weft_enter", i64, parameters)
    code, words, given, count = f.arguments
    registers = f.room(i64, count, 64)
    f.copy(registers, words, f.mul(given, constant(8, i64)))
    status = f.call("weft_machine", i64, code, registers)
    f.ret(status)
    return module.text()


@functools.cache
def function() -> Callable[[int, bytes, int, int], int]:
    """`weft_enter` of this process. Other Python threads run while it does."""
    address = machine.library().addresses["weft_machine"]
    kept = cache.kept("entry", lambda: text(host().triple), host(), Tier.LIGHT)
    made = link.load(kept, {"weft_machine": address})
    enter: Any = made.function(
        "weft_enter", ctypes.c_int64, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64
    )
    return enter

"""Kernel to LLVM: one function `void name(ptr buffers, i64 begin, i64 end)`, which runs iterations [begin, end) of the loop over threads.

A value that does not differ between lanes stays a scalar until it meets one that does. The tail of a loop over lanes is masked:
where the machine masks every type, in the one body there is; elsewhere the body without masks comes first and the tail after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np

from weft.base.errors import InternalError
from weft.compiler.kernel.ir import (
    Buffer,
    Compute,
    Constant,
    Fold,
    If,
    Index,
    Kernel,
    Kind,
    Load,
    Loop,
    Position,
    Statement,
    Store,
    Term,
    Value,
    Variable,
)
from weft.compiler.kernel.widths import widths
from weft.compiler.target import llvm
from weft.compiler.target.cpu.features import Features
from weft.compiler.target.cpu.memory import Memory, Place
from weft.compiler.target.lanes import Lanes
from weft.compiler.target.llvm import i1, i32, i64

Lane = Any


def lower(kernel: Kernel, features: Features, name: str = "kernel") -> str:
    """The text of a module with the kernel as its one function."""
    module = llvm.Module(triple=features.triple, vector_bits=features.vector_bits or 128)
    lower_into(module, kernel, features, name)
    return module.text()


def lower_into(module: llvm.Module, kernel: Kernel, features: Features, name: str) -> None:
    """Add a kernel to a module, as a function of the given name."""
    parameters = [
        llvm.Parameter("buffers", llvm.ptr),
        llvm.Parameter("begin", i64),
        llvm.Parameter("end", i64),
    ]
    function = module.function(name, llvm.void, parameters)
    _Lowering(function, kernel, features).run()
    function.ret()

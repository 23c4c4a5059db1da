"""CPU backend: target description, kernels to LLVM text, and text to machine code that is called by address."""

from typing import TYPE_CHECKING

from weft.base.lazy import lazy
from weft.compiler.target.tables import register

if TYPE_CHECKING:
    from weft.compiler.target.cpu import tables
else:
    tables = lazy("weft.compiler.target.cpu.tables")

register("cpu", lambda: tables.TABLES)

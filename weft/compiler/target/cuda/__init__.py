"""Code for NVIDIA GPUs: PTX, which the driver or NVIDIA's linker assembles."""

from typing import TYPE_CHECKING

from weft.base.lazy import lazy
from weft.compiler.target.tables import register

if TYPE_CHECKING:
    from weft.compiler.target.cuda import tables
else:
    tables = lazy("weft.compiler.target.cuda.tables")

register("cuda", lambda: tables.TABLES)

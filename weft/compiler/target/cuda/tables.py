"""Tables of GPUs: the emitter of each kind of fusion, and the calls of NVIDIA's libraries."""

from __future__ import annotations

from weft.compiler.emit.emitters import get_emitter
from weft.compiler.target.cuda.library.compose import compose
from weft.compiler.target.cuda.library.planning import plan
from weft.compiler.target.cuda.library.solvers import definition_for
from weft.compiler.target.tables import Tables

TABLES = Tables(get_emitter, plan, compose, definition_for)

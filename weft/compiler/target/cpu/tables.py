"""The tables of CPUs: the emitter of each kind of fusion, and the libraries that compute the rest."""

from __future__ import annotations

from weft.compiler.emit.emitters import EMITTERS
from weft.compiler.target.cpu.library.planning import plan
from weft.compiler.target.tables import Tables

TABLES = Tables(EMITTERS, lambda equation, target: plan(equation))

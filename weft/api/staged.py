"""What is staged for one signature of arguments."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.api.contract import Contract
from weft.api.flat import Dispatcher
from weft.api.ref_arguments import StagedRefs
from weft.api.stages import is_empty
from weft.base import tree
from weft.base.dtypes import float0
from weft.base.errors import message
from weft.base.settings import config
from weft.base.source import user_line
from weft.indexing.guards import Assumption
from weft.ir.at_sizes import AtSizes, JaxprAtSizes
from weft.ir.jaxpr import Jaxpr, constants_to_arguments
from weft.runtime import spmd
from weft.runtime.array import ConcreteArray, lift
from weft.runtime.placing import uncommit
from weft.sharding.mesh import Mesh


class StagedFunction:
    """Function staged for one signature: a jaxpr with constants as leading operands, those constants, and the tree of
    the result.

    `operand_names` are those of the jaxpr's operands in messages. `contract` limits the programs for meshes that are
    compiled for it. Results of dtype float0 are known by their types: the jaxpr does not return them.
    """

    __slots__ = (
        "_checked",
        "assumptions",
        "calls",
        "constants",
        "contract",
        "dispatchers",
        "donated",
        "guards",
        "jaxpr",
        "operand_names",
        "out_tree",
        "out_types",
        "params",
        "refs",
        "timed_calls",
    )

    def __init__(
        self,
        jaxpr: Jaxpr,
        constants: Sequence[Any],
        out_tree: tree.PyTreeDef,
        name: str,
        donated: tuple[bool, ...],
        refs: StagedRefs | None = None,
        *,
        paths: Sequence[str] = (),
        contract: Contract | None = None,
    ):
        self.refs = refs
        self.out_types = jaxpr.out_avals
        if refs is not None:
            self.out_types = self.out_types[: len(self.out_types) - refs.written_count]
            donated = refs.donation_flags(donated)
        if self.has_empty:
            jaxpr = jaxpr.replace(outvars=[v for v in jaxpr.outvars if not is_empty(v.aval)])
        self.jaxpr = constants_to_arguments(jaxpr)
        self.constants = tuple(map(_constant, constants))
        self.operand_names = ("constant",) * len(self.constants) + tuple(paths)
        self.contract = contract
        self._checked: spmd.SpmdProgram | None = None  # the program that was checked last
        self.out_tree = out_tree
        self.params: dict[str, Any] = {"name": name, "jaxpr": self.jaxpr}
        self.donated: tuple[bool, ...] = ()
        if any(donated):
            self.donated = self.params["donated"] = (False,) * len(self.constants) + donated
        self.calls = self.timed_calls = 0
        # For symbolic sizes: the guards that they must satisfy, or what was assumed of sizes that are still unknown.
        self.guards: tuple[Any, ...] = ()
        self.assumptions: tuple[Assumption, ...] = ()
        # By the settings of calls and the placements of the leaves; None if there cannot be one.
        self.dispatchers: dict[Any, Dispatcher | None] = {}

    def at_sizes(self, sizes: Mapping[Any, int]) -> StagedFunction:
        """Instantiate a function that was staged for symbolic sizes."""
        staged = object.__new__(StagedFunction)
        at = AtSizes(sizes)
        staged.jaxpr = JaxprAtSizes(self.jaxpr, sizes)
        staged.out_types = [at.type(t) for t in self.out_types]
        staged.constants, staged.out_tree, staged.donated = self.constants, self.out_tree, self.donated
        staged.operand_names, staged.contract, staged._checked = self.operand_names, self.contract, None
        staged.params = {**self.params, "jaxpr": staged.jaxpr}
        staged.calls = staged.timed_calls = 0
        staged.dispatchers, staged.guards, staged.assumptions = {}, self.guards, ()
        refs = self.refs
        staged.refs = None if refs is None else StagedRefs(refs.arguments, refs.written, refs.captured)
        return staged

    def traced_params(self) -> dict[str, Any]:
        """Return the parameters of a call that becomes part of another jaxpr."""
        jaxpr = self.jaxpr
        return {**self.params, "jaxpr": jaxpr.plain()} if isinstance(jaxpr, JaxprAtSizes) else self.params

    def find_mesh(self, operands: Sequence[Any]) -> Mesh | None:
        """Return the mesh that a call with these operands runs on, or None if it runs on one device."""
        return spmd.find_mesh(self.jaxpr, operands, names=self.operand_names)

    def compile_for_mesh(self, operands: Sequence[Any], mesh: Mesh, shardings: Any = None) -> spmd.SpmdProgram:
        """Return the program for a mesh, compiled at the first call; raise if it exceeds the contract."""
        compiled = spmd.compile_for_mesh(
            self.jaxpr, operands, mesh, self.donated, in_shardings=shardings, names=self.operand_names
        )
        if self.contract is not None and compiled is not self._checked:
            self.contract.check(compiled, self.operand_names)
            self._checked = compiled
        return compiled

    @property
    def has_empty(self) -> bool:
        """Whether a result has dtype float0."""
        return any(map(is_empty, self.out_types))

    def result(self, results: Sequence[Any]) -> Any:
        """Return the function's result from the results of the jaxpr."""
        if len(results) < len(self.out_types):
            rest = iter(results)
            results = [np.zeros(t.shape, float0) if is_empty(t) else next(rest) for t in self.out_types]  # type: ignore[attr-defined]
        return tree.unflatten(self.out_tree, results)


def _constant(value: Any) -> Any:
    """Return a constant as it is stored: writeable NumPy arrays are copied, since the caller may change them later."""
    if isinstance(value, np.ndarray) and value.flags.writeable and value.dtype != float0:
        return lift(value)
    return uncommit(value)


def warn_of_constants(name: str, constants: Sequence[Any]) -> None:
    """Warn if a jitted function closes over at least `captured_constants_warn_bytes` bytes."""
    most = config.captured_constants_warn_bytes
    size = sum(c.nbytes for c in constants if isinstance(c, ConcreteArray)) if constants and most >= 0 else 0
    if size and size >= most:
        what = f"{name} closes over {size} bytes of arrays, which are then part of the program."
        warnings.warn(message(what, fix="pass them as arguments", at=user_line()), UserWarning, stacklevel=2)

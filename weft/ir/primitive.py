"""The class of a primitive: everything the system knows about one operation.

Staging and the verifier read `type` and `effects`, the interpreter `eval`, vmap `batch`, the check of key reuse
`keys_through`, the tests `samples`. All other rules are inherited, by concern: derivatives from `Differentiation`,
sharding from `Placement`, what passes may assume about results from `Numerics`, lowering, fusion and cost from
`Compilation`. `docs/design/primitive.md` explains the class with examples.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft.ir.batching import Axis
from weft.ir.keys import KeysThrough
from weft.ir.missing_rule import No, missing
from weft.ir.registry import lookup, primitive
from weft.ir.rules.bindable import Params
from weft.ir.rules.compilation import Compilation
from weft.ir.rules.differentiation import Differentiation
from weft.ir.rules.jax_members import JaxMembers
from weft.ir.rules.numerics import Numerics
from weft.ir.rules.placement import Placement
from weft.ir.sample import Sample
from weft.ir.types import Type

# What a file that defines primitives needs.
__all__ = ["NO_EFFECTS", "Axis", "No", "Params", "Primitive", "Sample", "lookup", "missing", "primitive"]

NO_EFFECTS: frozenset[Any] = frozenset()


class Primitive(Differentiation, Placement, Numerics, Compilation, JaxMembers):
    """One operation: its properties as class attributes and its rules as methods.

    Subclass a family, give it a name and rules, and register it with `@primitive`, which replaces the class by its only
    instance; calling that binds the operation. Every rule has a default, so that a class states only what differs. A
    rule that cannot exist is a `No("reason")`, and the user sees the reason in the error. Rules that can be defined in
    several ways return None for "use the default way".
    """

    def type(self, *types: Any, **params: Any) -> Any:
        """Return the result type, or the list of them if `multiple_results`, from the operand types. Raise the user's
        error if the operands do not fit."""
        raise missing(f"`{self.name}` has no type rule.")

    def effects(self, types: Sequence[Type], params: Params) -> frozenset[Any]:
        """Return the side effects of the operation."""
        return NO_EFFECTS

    def eval(self, *arrays: Any, **params: Any) -> Any:
        """Compute the operation on NumPy arrays of storage dtypes: the reference for all other implementations."""
        raise missing(f"`{self.name}` has no eval rule.")

    def batch(self, axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> tuple[Any, Any]:
        """Apply the operation to operands that have an additional batch dimension at `dims` (None: not batched). Return
        the results and their batch dimensions."""
        raise missing(f"`{self.name}` has no batch rule, so it does not work under vmap.")

    def keys_through(self, through: KeysThrough, operands: Sequence[Any], params: Params) -> Sequence[Any] | None:
        """Return which random keys of the operands each result contains, for the check of key reuse; None if all keys
        in the results are new. An operand is the `KeysOf` its array, or None if it holds no keys."""
        if self.identity:
            return operands
        if self.copies == "all" and len(operands) == 1:
            return [operands[0].copy_keys(self, params)]
        return None

    def samples(self) -> Iterable[Sample]:
        """Yield operands and parameters on which the tests check every law."""
        raise missing(f"`{self.name}` has no samples: define `samples` to test it.")

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> Any:
        return lookup, (self.name,)

"""`ManualAxisType`: how a value inside of `shard_map` varies along each manual axis."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weft.base.arguments import described
from weft.base.errors import ArgumentError, ArgumentTypeError

_interned: dict[tuple[frozenset[Any], ...], ManualAxisType] = {}


class ManualAxisType:
    """State of a value along manual axes: varying (each device has its own), unreduced (the sum over devices is
    pending), reduced (all devices have the same, and its cotangent is unreduced), or invariant (all devices have the
    same). Equal types are one object; `NONE` is invariant along every axis."""

    __slots__ = ("_hash", "reduced", "unreduced", "varying")

    varying: frozenset[Any]
    unreduced: frozenset[Any]
    reduced: frozenset[Any]
    _hash: int

    def __new__(
        cls,
        *,
        varying: Iterable[Any] = frozenset(),
        unreduced: Iterable[Any] = frozenset(),
        reduced: Iterable[Any] = frozenset(),
    ) -> ManualAxisType:
        key = (_axes(varying, "varying"), _axes(unreduced, "unreduced"), _axes(reduced, "reduced"))
        known = _interned.get(key)
        if known is not None:
            return known
        words = ("varying", "unreduced", "reduced")
        for i, j in ((0, 1), (0, 2), (1, 2)):
            if key[i] & key[j]:
                raise ArgumentError(
                    f"A value cannot be both {words[i]} and {words[j]} along an axis.",
                    received=f"{words[i]}={set(key[i])} and {words[j]}={set(key[j])}",
                    fix="name each axis once",
                )
        self = super().__new__(cls)
        self.varying, self.unreduced, self.reduced = key
        self._hash = hash(key)
        return _interned.setdefault(key, self)

    @property
    def empty(self) -> bool:
        return not (self.varying or self.unreduced or self.reduced)

    @property
    def vur(self) -> frozenset[Any]:
        """Axes along which the value is not invariant."""
        return self.varying | self.unreduced | self.reduced

    def invarying(self, mesh: Any) -> frozenset[Any]:
        """Return the manual axes of a mesh along which the value is invariant."""
        return frozenset(mesh.manual_axes) - self.vur

    def update(self, **changes: Any) -> ManualAxisType:
        """Return a copy with some of the sets changed."""
        known = {"varying": self.varying, "unreduced": self.unreduced, "reduced": self.reduced}
        return ManualAxisType(**{**known, **changes})

    def to_ct_mat(self) -> ManualAxisType:
        """Return the type of the cotangent: unreduced and reduced are swapped."""
        return ManualAxisType(varying=self.varying, unreduced=self.reduced, reduced=self.unreduced)

    def __bool__(self) -> bool:
        return not self.empty

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other

    def __reduce__(self) -> Any:
        return _rebuild, (self.varying, self.unreduced, self.reduced)

    def __repr__(self) -> str:
        return f"ManualAxisType(varying={self.varying}, unreduced={self.unreduced}, reduced={self.reduced})"


def _rebuild(varying: Any, unreduced: Any, reduced: Any) -> ManualAxisType:
    return ManualAxisType(varying=varying, unreduced=unreduced, reduced=reduced)


def _axes(axes: Any, what: str) -> frozenset[Any]:
    if isinstance(axes, str) or not isinstance(axes, Iterable):
        raise ArgumentTypeError(f"`{what}` must be a set of axes.", received=described(axes), fix=f"{what}={{'x'}}")
    return frozenset(axes)


NONE = ManualAxisType()

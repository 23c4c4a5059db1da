"""Rotations in three dimensions, and interpolation between them. Both are trees of arrays."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from weft import lax, random
from weft.base.errors import ArgumentError, ArgumentTypeError, ShapeMismatchError
from weft.base.publish import publish as _publish
from weft.base.tracebacks import boundary
from weft.base.tree_nodes import register_dataclass
from weft.numpy.contraction import einsum
from weft.numpy.creation import ones_like
from weft.numpy.elementwise import absolute, hypot
from weft.numpy.indexing import concrete
from weft.numpy.joining import concatenate, stack
from weft.numpy.linalg.decompositions import eigh
from weft.numpy.manipulation import broadcast_to
from weft.numpy.reductions import argmax, sum as sum_
from weft.numpy.selection import where
from weft.numpy.sorting import searchsorted
from weft.numpy.taking import take_along_axis
from weft.numpy.transcendental import arctan2, cos, sin
from weft.numpy.util import canonical_dtype, combining_ranks, ensure_array, ensure_arrays, promote_dtypes_inexact
from weft.trace.array import Array


class Rotation:
    """Rotation, or a sequence of them, as quaternions (x, y, z, w) of norm 1 along the last axis of `quat`.

    Make them with `from_quat`, `from_matrix`, `from_rotvec`, `from_euler`, `from_mrp`, `identity` or `random`. `p * q`
    is the rotation that does q, then p; an index selects from a sequence.

    >>> import weft.numpy as np
    >>> from weft.scipy.spatial.transform import Rotation
    >>> quarter = Rotation.from_euler("z", 90.0, degrees=True)
    >>> quarter.apply(np.array([1.0, 0.0, 0.0])).round(3)
    Array([0., 1., 0.], dtype=float32)
    """

    quat: Any

    def __init__(self, quat: Any) -> None:
        self.quat = quat

    def __repr__(self) -> str:
        return f"Rotation(quat={self.quat!r})"

    # ------------------------------------------------------------------------------------------------ making them

    @classmethod
    @boundary
    def from_quat(cls, quat: Any) -> Rotation:
        """Make rotations from quaternions (x, y, z, w) of any norm but zero."""
        quat = _vectors("Rotation.from_quat", quat, 4)
        return cls(quat / _norm(quat))

    @classmethod
    @boundary
    def from_matrix(cls, matrix: Any) -> Rotation:
        """Make rotations from orthogonal 3x3 matrices of determinant 1."""
        m = _vectors("Rotation.from_matrix", matrix, 3)
        if m.ndim < 2 or m.shape[-2] != 3:
            raise ShapeMismatchError("Rotation.from_matrix needs 3x3 matrices.", received=m.aval.short())
        diagonal = [m[..., i, i] for i in range(3)]
        trace = diagonal[0] + diagonal[1] + diagonal[2]
        # The quaternion times four of its elements in turn; the one times the largest is the most exact.
        rows = []
        for i in range(3):
            j, k = (i + 1) % 3, (i + 2) % 3
            row: list[Any] = [None] * 4
            row[i] = 1 + 2 * diagonal[i] - trace
            row[j] = m[..., j, i] + m[..., i, j]
            row[k] = m[..., k, i] + m[..., i, k]
            row[3] = m[..., k, j] - m[..., j, k]
            rows.append(stack(row, -1))
        antisymmetric = [m[..., (i + 2) % 3, (i + 1) % 3] - m[..., (i + 1) % 3, (i + 2) % 3] for i in range(3)]
        rows.append(stack([*antisymmetric, 1 + trace], -1))
        choice = argmax(stack([*diagonal, trace], -1), axis=-1)[..., None, None]
        chosen = take_along_axis(stack(rows, -2), broadcast_to(choice, (*choice.shape[:-1], 4)), -2)[..., 0, :]
        return cls(chosen / _norm(chosen))

    @classmethod
    @boundary
    def from_rotvec(cls, rotvec: Any, degrees: bool = False) -> Rotation:
        """Make rotations from vectors along their axes, as long as their angles."""
        vector = _vectors("Rotation.from_rotvec", rotvec, 3)
        if degrees:
            vector = vector * (math.pi / 180)
        square = sum_(vector * vector, axis=-1, keepdims=True)
        small = square <= 1e-6
        angle = lax.sqrt(where(small, 1, square))
        scale = where(small, 0.5 - square / 48 + square * square / 3840, sin(angle / 2) / angle)
        real = where(small, 1 - square / 8 + square * square / 384, cos(angle / 2))
        return cls(concatenate([scale * vector, real], -1))

    @classmethod
    @boundary
    def from_mrp(cls, mrp: Any) -> Rotation:
        """Make rotations from modified Rodrigues parameters: the axis times the tangent of a quarter of the angle."""
        vector = _vectors("Rotation.from_mrp", mrp, 3)
        square = sum_(vector * vector, axis=-1, keepdims=True)
        return cls(concatenate([2 * vector, 1 - square], -1) / (1 + square))

    @classmethod
    @boundary
    def from_euler(cls, seq: str, angles: Any, degrees: bool = False) -> Rotation:
        """Make rotations around one to three axes, one after the other.

        Args:
            seq: the axes: of letters x, y, z for axes that are fixed, X, Y, Z for axes that rotate with the body.
            angles: an angle for each of them along the last axis; for one axis also a number.
            degrees: whether angles are in degrees.
        """
        axes, fixed = _axes("Rotation.from_euler", seq)
        (angle,) = (ensure_array(a) for a in promote_dtypes_inexact(*ensure_arrays("Rotation.from_euler", angles)))
        if len(axes) == 1 and not angle.ndim:
            angle = angle[None]
        if not angle.ndim or angle.shape[-1] != len(axes):
            raise ShapeMismatchError(
                f"Rotation.from_euler: there must be {len(axes)} angles for {seq!r} along the last axis.",
                received=angle.aval.short(),
            )
        if degrees:
            angle = angle * (math.pi / 180)
        out = None
        for i, axis in enumerate(axes):
            half = angle[..., i] / 2
            elements = [lax.full_like(half, 0)] * 3 + [cos(half)]
            elements[axis] = sin(half)
            one = stack(elements, -1)
            out = one if out is None else _product(one, out) if fixed else _product(out, one)
        return cls(out)

    @classmethod
    @boundary
    def identity(cls, num: int | None = None, dtype: Any = float) -> Rotation:
        """Return the identity rotation, or a sequence of `num` of them."""
        quat = np.zeros((4,) if num is None else (num, 4), canonical_dtype(dtype, "Rotation.identity"))
        quat[..., 3] = 1
        return cls(ensure_array(quat))

    @classmethod
    @boundary
    def random(cls, random_key: Any, num: int | None = None) -> Rotation:
        """Draw a uniformly distributed rotation, or `num` of them."""
        return cls.from_quat(random.normal(random_key, (4,) if num is None else (num, 4)))

    @classmethod
    @boundary
    def concatenate(cls, rotations: Iterable[Rotation]) -> Rotation:
        """Concatenate rotations and sequences of rotations to one sequence."""
        parts = [r.quat[None] if r.single else r.quat for r in rotations]
        if not parts:
            raise ArgumentError("Rotation.concatenate needs at least one rotation.")
        return cls(concatenate(parts, 0))

    # ------------------------------------------------------------------------------------------------- other forms

    @boundary
    def as_quat(self, canonical: bool = False, scalar_first: bool = False) -> Array:
        """Return quaternions (x, y, z, w), or (w, x, y, z) if `scalar_first`. Of the two for each rotation the
        `canonical` one has w >= 0, or a first nonzero element that is positive."""
        quat = _canonical(self.quat) if canonical else self.quat
        return concatenate([quat[..., 3:], quat[..., :3]], -1) if scalar_first else quat

    @boundary
    def as_matrix(self) -> Array:
        """Return matrices of shape (..., 3, 3)."""
        x, y, z, w = (self.quat[..., i] for i in range(4))
        rows = [
            [x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), -x * x + y * y - z * z + w * w, 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), -x * x - y * y + z * z + w * w],
        ]
        return stack([stack(row, -1) for row in rows], -2)

    @boundary
    def as_rotvec(self, degrees: bool = False) -> Array:
        """Return vectors along the axes, as long as the angles, which are 0 to pi."""
        quat = _canonical(self.quat)
        vector, real = quat[..., :3], quat[..., 3:]
        square = sum_(vector * vector, axis=-1, keepdims=True)
        small = square <= 2.5e-7
        length = lax.sqrt(where(small, 1, square))
        scale = where(small, 2 + square / 3 + 3 * square * square / 20, 2 * arctan2(length, real) / length)
        vector = scale * vector
        return vector * (180 / math.pi) if degrees else vector

    @boundary
    def as_mrp(self) -> Array:
        """Return the modified Rodrigues parameters."""
        quat = _canonical(self.quat)
        return quat[..., :3] / (1 + quat[..., 3:])

    @boundary
    def as_euler(self, seq: str, degrees: bool = False) -> Array:
        """Return angles around three axes for `from_euler`. In gimbal lock they are not unique, and the third is
        zero."""
        axes, fixed = _axes("Rotation.as_euler", seq)
        if len(axes) != 3:
            raise ArgumentError(f"Rotation.as_euler: Expected 3 axes, got {seq}.")
        i, j, k = axes if fixed else axes[::-1]
        symmetric = i == k
        k = 3 - i - j
        sign = (i - j) * (j - k) * (k - i) // 2
        x = [self.quat[..., n] for n in range(4)]
        if symmetric:
            a, b, c, d = x[3], x[i], x[j], x[k] * sign
        else:
            a, b, c, d = x[3] - x[j], x[i] + x[k] * sign, x[j] + x[3], x[k] * sign - x[i]
        # Both of a pair vanish in gimbal lock, where only the sum or the difference of the outer angles is known.
        eps = 1e-6 if self.quat.dtype.itemsize < 8 else 1e-12
        sum_lost, difference_lost = (lax.square(p) + lax.square(q) <= eps * eps for p, q in ((a, b), (c, d)))
        a, d = where(sum_lost, 1, a), where(difference_lost, 0, d)
        b, c = where(sum_lost, 0, b), where(difference_lost, 1, c)
        half_sum, half_difference = arctan2(b, a), arctan2(d, c)
        second = 2 * arctan2(where(difference_lost, 0, hypot(c, d)), where(sum_lost, 0, hypot(a, b)))
        first, third = half_sum - half_difference, half_sum + half_difference
        if not fixed:
            first, third = third, first
        alone = where(difference_lost, 2 * half_sum, 2 * half_difference * (-1 if fixed else 1))
        locked = sum_lost | difference_lost
        first, third = where(locked, alone, first), where(locked, 0, third)
        if not symmetric:
            second = second - math.pi / 2
            first, third = (first, third * sign) if fixed else (first * sign, third)
        angles = stack([_wrap(first), second, _wrap(third)], -1)
        return angles * (180 / math.pi) if degrees else angles

    # ---------------------------------------------------------------------------------------------- what they do

    @boundary
    def apply(self, vectors: Any, inverse: bool = False) -> Array:
        """Rotate vectors, or rotate them back: one rotation of all vectors, all of one vector, or one each."""
        vectors = _vectors("Rotation.apply", vectors, 3)
        quat, vectors = (ensure_array(a) for a in promote_dtypes_inexact(self.quat, vectors))
        if not self.single and vectors.ndim > 1 and len({vectors.shape[0], quat.shape[0], 1}) > 2:
            raise ShapeMismatchError(
                "Rotation.apply: there must be as many vectors as rotations, or one of either.",
                received=f"{vectors.aval.short()} for {quat.shape[0]} rotations",
            )
        return einsum("...ji,...j->...i" if inverse else "...ij,...j->...i", Rotation(quat).as_matrix(), vectors)

    @boundary
    @combining_ranks
    def inv(self) -> Rotation:
        """Invert the rotations."""
        return Rotation(self.quat * np.array([-1, -1, -1, 1], self.quat.dtype))

    @boundary
    def magnitude(self) -> Array:
        """Return the angles, 0 to pi."""
        vector = self.quat[..., :3]
        square = sum_(vector * vector, axis=-1)
        none = square == 0
        length = where(none, 0, lax.sqrt(where(none, 1, square)))
        return 2 * arctan2(length, absolute(self.quat[..., 3]))

    @boundary
    def mean(self, weights: Any = None) -> Rotation:
        """Return the mean rotation, which minimises the squared distances between matrices."""
        if self.single:
            raise ArgumentTypeError("Rotation.mean: a single rotation has no mean.", fix="the rotation itself")
        quat = self.quat
        if weights is None:
            weighted = quat
        else:
            (weight,) = ensure_arrays("Rotation.mean", weights)
            if weight.shape != quat.shape[:1]:
                raise ShapeMismatchError(
                    "Rotation.mean: there must be a weight for each rotation.",
                    received=f"{weight.aval.short()} for {quat.shape[0]} rotations",
                )
            weighted = quat * weight[:, None].astype(quat.dtype)
        _, vectors = eigh(einsum("ni,nj->ij", weighted, quat))
        return Rotation(vectors[:, -1])

    @boundary
    def __mul__(self, other: Rotation) -> Rotation:
        if not isinstance(other, Rotation):
            return NotImplemented
        counts = [r.quat.shape[0] for r in (self, other) if not r.single]
        if len({*counts, 1}) > 2:
            raise ShapeMismatchError(
                "Rotations are multiplied one by one: there must be as many of both, or a single one.",
                received=" and ".join(map(str, counts)),
            )
        out = _product(self.quat, other.quat)
        return Rotation(out / _norm(out))

    @property
    def single(self) -> bool:
        """True for one rotation, False for a sequence."""
        return len(self.quat.shape) == 1

    def __len__(self) -> int:
        if self.single:
            raise ArgumentTypeError("Single rotation has no len().")
        return self.quat.shape[0]

    def __bool__(self) -> bool:
        return True

    @boundary
    def __getitem__(self, indexer: Any) -> Rotation:
        if self.single:
            raise ArgumentTypeError("Single rotation is not subscriptable.")
        return Rotation(self.quat[indexer])


class Slerp:
    """Interpolation between rotations at times: around one axis with a constant speed between two of them.

    Make it with `Slerp.init(times, rotations)` and call it with times.

    >>> import weft.numpy as np
    >>> from weft.scipy.spatial.transform import Rotation, Slerp
    >>> slerp = Slerp.init(np.array([0.0, 1.0]), Rotation.from_euler("z", np.array([[0.0], [1.0]])))
    >>> slerp(0.25).as_rotvec().round(3)
    Array([0.  , 0.  , 0.25], dtype=float32)
    """

    times: Any
    timedelta: Any
    rotations: Any
    rotvecs: Any

    def __init__(self, times: Any, timedelta: Any, rotations: Any, rotvecs: Any) -> None:
        self.times, self.timedelta, self.rotations, self.rotvecs = times, timedelta, rotations, rotvecs

    def __repr__(self) -> str:
        return f"Slerp(times={self.times!r}, rotations={self.rotations!r})"

    @classmethod
    @boundary
    def init(cls, times: Any, rotations: Rotation) -> Slerp:
        """Make an interpolation between a sequence of at least two rotations, at times in ascending order."""
        if not isinstance(rotations, Rotation) or rotations.single or len(rotations) < 2:
            raise ArgumentError("`rotations` must be a sequence of at least 2 rotations.")
        (times,) = (ensure_array(a) for a in promote_dtypes_inexact(*ensure_arrays("Slerp.init", times)))
        if times.shape != (len(rotations),):
            raise ShapeMismatchError(
                "Expected number of rotations to be equal to number of timestamps given.",
                received=f"{len(rotations)} rotations and times {times.aval.short()}",
            )
        known = concrete(times)
        if known is not None and not (np.diff(known) > 0).all():
            raise ArgumentError("Times must be in strictly increasing order.", received=f"times {known}")
        return cls(times, times[1:] - times[:-1], rotations[:-1], (rotations[:-1].inv() * rotations[1:]).as_rotvec())

    @boundary
    def __call__(self, times: Any) -> Rotation:
        """Interpolate rotations at times, a number or a vector. Times out of range raise if they are known; under
        `jit` the first or last interval is extrapolated.
        """
        (t,) = ensure_arrays("Slerp", times)
        if t.ndim > 1:
            raise ShapeMismatchError("Slerp needs a time or a vector of times.", received=t.aval.short())
        known, limits = concrete(t), concrete(self.times)
        if known is not None and limits is not None and ((known < limits[0]) | (known > limits[-1])).any():
            raise ArgumentError(
                f"Interpolation times must be within the range [{limits[0]}, {limits[-1]}], both inclusive.",
                received=str(known),
            )
        i = lax.clamp(0, searchsorted(self.times, t, side="left") - 1, self.times.shape[0] - 2)
        share = (t - self.times[i]) / self.timedelta[i]
        vectors = self.rotvecs[i] * share[..., None]
        return self.rotations[i] * Rotation.from_rotvec(vectors)


register_dataclass(Rotation, ["quat"], [])
register_dataclass(Slerp, ["times", "timedelta", "rotations", "rotvecs"], [])


# ------------------------------------------------------------------------------------------------------- how it is done


def _vectors(name: str, x: Any, size: int) -> Array:
    (x,) = (ensure_array(a) for a in promote_dtypes_inexact(*ensure_arrays(name, x)))
    if not x.ndim or x.shape[-1] != size:
        raise ShapeMismatchError(f"{name} needs vectors of {size} elements.", received=x.aval.short())
    return x


def _norm(x: Any) -> Any:
    return lax.sqrt(sum_(x * x, axis=-1, keepdims=True))


def _axes(name: str, seq: Any) -> tuple[list[int], bool]:
    """Return the axes of a sequence by number, and whether they are fixed (extrinsic)."""
    if not isinstance(seq, str) or not 1 <= len(seq) <= 3:
        raise ArgumentError(
            f"{name}: Expected axis specification to be a non-empty string of upto 3 characters, got {seq}."
        )
    fixed = re.fullmatch("[xyz]+", seq) is not None
    if not fixed and not re.fullmatch("[XYZ]+", seq):
        raise ArgumentError(
            f"{name}: Expected axes from `seq` to be from ['x', 'y', 'z'] or ['X', 'Y', 'Z'], got {seq}."
        )
    axes = ["xyz".index(letter) for letter in seq.lower()]
    if any(a == b for a, b in itertools.pairwise(axes)):
        raise ArgumentError(f"{name}: Expected consecutive axes to be different, got {seq}.")
    return axes, fixed


def _product(p: Any, q: Any) -> Any:
    """Multiply quaternions."""
    px, py, pz, pw = (p[..., i] for i in range(4))
    qx, qy, qz, qw = (q[..., i] for i in range(4))
    return stack(
        [
            pw * qx + px * qw + py * qz - pz * qy,
            pw * qy + py * qw + pz * qx - px * qz,
            pw * qz + pz * qw + px * qy - py * qx,
            pw * qw - px * qx - py * qy - pz * qz,
        ],
        -1,
    )


def _canonical(quat: Any) -> Any:
    """Return the quaternion of a rotation with w > 0 or, if w is zero, with a positive first nonzero element."""
    x, y, z, w = (quat[..., i] for i in range(4))
    negative = (w < 0) | ((w == 0) & ((x < 0) | ((x == 0) & ((y < 0) | ((y == 0) & (z < 0))))))
    return where(negative[..., None], -ones_like(quat), ones_like(quat)) * quat


def _wrap(angle: Any) -> Any:
    """Wrap an angle to the interval from -pi to pi."""
    return angle - 2 * math.pi * lax.stop_gradient(lax.floor((angle + math.pi) / (2 * math.pi)))


_publish(__name__)

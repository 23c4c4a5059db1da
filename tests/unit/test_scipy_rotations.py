"""Rotations, against SciPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.spatial.transform

import weft
import weft.numpy as wnp
from weft.scipy.spatial.transform import Rotation, Slerp
from weft.test_util import check_grads

Reference = scipy.spatial.transform.Rotation
RNG = np.random.default_rng(0)
QUATS = RNG.normal(size=(6, 4)).astype(np.float32)
SEQUENCES = ["".join(s) for s in itertools.product("xyz", repeat=3) if s[0] != s[1] != s[2]]
SEQUENCES += [s.upper() for s in SEQUENCES]


def close(a: Any, b: Any, tolerance: float = 2e-5) -> None:
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def same(ours: Rotation, theirs: Any) -> None:
    close(ours.as_matrix(), theirs.as_matrix())


@pytest.mark.parametrize("quats", [QUATS, QUATS[0], np.eye(4, dtype=np.float32)], ids=["many", "one", "half turns"])
def test_forms(quats: np.ndarray) -> None:
    ours, theirs = Rotation.from_quat(quats), Reference.from_quat(quats)
    same(ours, theirs)
    for canonical, first in itertools.product((False, True), repeat=2):
        close(ours.as_quat(canonical, first), theirs.as_quat(canonical=canonical, scalar_first=first))
    close(ours.as_rotvec(), theirs.as_rotvec())
    close(ours.as_rotvec(degrees=True), theirs.as_rotvec(degrees=True), 1e-3)
    close(ours.as_mrp(), theirs.as_mrp())
    close(ours.magnitude(), theirs.magnitude())
    same(ours.inv(), theirs.inv())
    same(Rotation.from_matrix(theirs.as_matrix().astype(np.float32)), theirs)
    same(Rotation.from_rotvec(theirs.as_rotvec().astype(np.float32)), theirs)
    same(Rotation.from_rotvec(theirs.as_rotvec(degrees=True).astype(np.float32), degrees=True), theirs)
    same(Rotation.from_mrp(theirs.as_mrp().astype(np.float32)), theirs)
    same(weft.jit(lambda r: r.inv())(ours), theirs.inv())


@pytest.mark.parametrize("seq", SEQUENCES)
def test_euler_angles(seq: str) -> None:
    angles = RNG.uniform(-3, 3, (5, 3)).astype(np.float32)
    same(Rotation.from_euler(seq, angles), Reference.from_euler(seq, angles))
    ours, theirs = Rotation.from_quat(QUATS), Reference.from_quat(QUATS)
    close(ours.as_euler(seq), theirs.as_euler(seq), 2e-4)
    close(ours[0].as_euler(seq, degrees=True), theirs[0].as_euler(seq, degrees=True), 2e-3)
    symmetric = seq[0] == seq[2]
    for middle in (0, np.pi) if symmetric else (-np.pi / 2, np.pi / 2):  # gimbal lock
        locked = np.array([0.3, middle, 0.2])
        with weft.enable_x64(True):
            found = np.asarray(Rotation.from_euler(seq, locked).as_euler(seq))
        assert abs(found[2]) < 1e-6
        close(Reference.from_euler(seq, found).as_matrix(), Reference.from_euler(seq, locked).as_matrix(), 1e-6)


def test_fewer_axes() -> None:
    same(Rotation.from_euler("z", 0.3), Reference.from_euler("z", 0.3))
    same(Rotation.from_euler("z", np.array([[0.3], [0.4]])), Reference.from_euler("z", [[0.3], [0.4]]))
    same(Rotation.from_euler("XY", np.array([30.0, 40.0]), True), Reference.from_euler("XY", [30.0, 40.0], True))


def test_products_and_vectors() -> None:
    p, q = (Rotation.from_quat(x) for x in (QUATS, QUATS[::-1]))
    a, b = (Reference.from_quat(x) for x in (QUATS, QUATS[::-1]))
    for i, j in ((slice(None), slice(None)), (0, slice(None)), (slice(None), 0), (0, 1)):
        same(p[i] * q[j], a[i] * b[j])
    v = RNG.normal(size=(6, 3)).astype(np.float32)
    for inverse in (False, True):
        close(p.apply(v, inverse), a.apply(v, inverse))
        close(p[0].apply(v, inverse), a[0].apply(v, inverse))
        close(p.apply(v[0], inverse), a.apply(v[0], inverse))
        close(weft.vmap(Rotation.apply, (0, 0, None))(p, v, inverse), a.apply(v, inverse))
    same(Rotation.concatenate([p, q[0]]), Reference.concatenate([a, b[0]]))
    same(p.mean(), a.mean())
    same(p.mean(np.arange(1.0, 7)), a.mean(np.arange(1, 7)))
    same(Rotation.identity(3), Reference.identity(3))
    assert (len(p), p.single, p[0].single, bool(p[0])) == (6, False, True, True)
    many = Rotation.random(weft.random.key(0), 2000)
    close((many.as_quat() ** 2).sum(-1), np.ones(2000))
    close(many.as_matrix().mean(0), np.zeros((3, 3)), 0.05)


def test_interpolation() -> None:
    times = np.array([0.0, 1.0, 3.0, 3.5, 6.0, 7.0], np.float32)
    ours, theirs = (
        Slerp.init(times, Rotation.from_quat(QUATS)),
        scipy.spatial.transform.Slerp(times, Reference.from_quat(QUATS)),
    )
    when = np.array([0.0, 0.2, 1.0, 2.9, 5.0, 7.0], np.float32)
    same(ours(when), theirs(when))
    same(weft.jit(lambda s, t: s(t))(ours, when), theirs(when))
    same(ours(2.5), theirs(2.5))
    check_grads(lambda t: ours(t).as_matrix(), (np.array([0.2, 2.9], np.float32),), 1)


@pytest.mark.parametrize("vector", [[0.3, -0.2, 0.5], [0.0, 0.0, 0.0], [1e-4, 0.0, -2e-4]])
def test_derivatives(vector: list[float]) -> None:
    with weft.enable_x64(True):
        v = np.array(vector)
        check_grads(lambda x: Rotation.from_rotvec(x).as_matrix(), (v,), 2, rtol=1e-4, atol=1e-4)
        check_grads(lambda x: Rotation.from_rotvec(x).as_rotvec(), (v,), 1)
        check_grads(lambda x: Rotation.from_rotvec(x).as_mrp(), (v,), 1)
        check_grads(lambda x: Rotation.from_matrix(Rotation.from_rotvec(x).as_matrix()).as_quat(), (v,), 1)
        check_grads(lambda x: Rotation.from_rotvec(x).as_euler("xyz"), (v,), 1)
    gradient = weft.jit(weft.grad(lambda r: wnp.sum(r.apply(np.arange(3.0)) ** 2)))(Rotation.from_quat(QUATS[0]))
    assert isinstance(gradient, Rotation)


ONE = Rotation.from_quat(QUATS[0])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Rotation.from_quat(np.ones(3)), "4 elements"),
        (lambda: Rotation.from_matrix(np.ones((2, 3))), "3x3"),
        (lambda: Rotation.from_euler("xX", np.ones(2)), "Expected axes"),
        (lambda: Rotation.from_euler("xx", np.ones(2)), "consecutive axes"),
        (lambda: Rotation.from_euler("xyzx", np.ones(4)), "upto 3"),
        (lambda: Rotation.from_euler("xyz", np.ones(2)), "3 angles"),
        (lambda: ONE.as_euler("xy"), "Expected 3 axes"),
        (lambda: len(ONE), "no len"),
        (lambda: ONE[0], "not subscriptable"),
        (lambda: ONE.mean(), "no mean"),
        (lambda: ONE.apply(np.ones(4)), "3 elements"),
        (lambda: Rotation.from_quat(QUATS).apply(np.ones((2, 3))), "as many vectors"),
        (lambda: Rotation.from_quat(QUATS) * Rotation.from_quat(QUATS[:2]), "as many of both"),
        (lambda: Slerp.init(np.zeros(1), ONE), "at least 2"),
        (lambda: Slerp.init(np.zeros(3), Rotation.from_quat(QUATS)), "number of timestamps"),
        (lambda: Slerp.init(np.zeros(6), Rotation.from_quat(QUATS)), "strictly increasing"),
        (lambda: Slerp.init(np.arange(6.0), Rotation.from_quat(QUATS))(7.0), "within the range"),
    ],
)
def test_errors(call: Any, text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        call()

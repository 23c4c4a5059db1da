"""Reverse mode of loops of unknown length on a simulated GPU: tapes, in programs and between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.cuda.simulated import SimulatedDriver, simulated_gpu
from weft import lax
from weft.sharding.device import Device


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Device, SimulatedDriver]]:
    with simulated_gpu(monkeypatch) as found:
        yield found


def grown(x: Any) -> Any:
    """A loop of some twenty iterations, so that tapes grow."""
    return lax.while_loop(lambda c: wnp.sum(c) < 60, lambda c: c + wnp.sin(c) ** 2 + 0.5, x)


def nested(x: Any) -> Any:
    """A loop in a loop, with a branch: tapes of tapes."""

    def body(carry: Any) -> Any:
        c, n = carry
        c = lax.while_loop(lambda d: wnp.sum(d) < 3 * n, lambda d: wnp.tanh(d) + d, c)
        return lax.cond(n % 2 == 0, lambda d: d * 1.5, lambda d: d * d, c), n + 1

    return lax.while_loop(lambda carry: carry[1] < 4, body, (x, 0))[0]


X = np.linspace(0.1, 0.9, 3).astype(np.float32)


def cases() -> dict[str, Callable[[Any], Any]]:
    """Functions of an array; each is called in a program and, but for the first ones, outside of one."""

    def loss(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: wnp.sum(f(x) ** 2)

    return {
        "gradient": weft.jit(weft.value_and_grad(loss(grown))),
        "nested": weft.jit(weft.grad(loss(nested))),
        "second order": weft.jit(weft.jacfwd(weft.grad(loss(grown)))),
        "batch": weft.jit(lambda x: weft.vmap(weft.grad(loss(grown)))(wnp.stack([x, x * 2]))),
        "outside of programs": weft.grad(loss(grown)),
        "nested, outside": weft.grad(loss(nested)),
        "half": weft.jit(lambda x: weft.grad(lambda y: loss(grown)(y).astype("float32"))(x.astype("bfloat16"))),
        "nothing": weft.jit(weft.grad(lambda x: wnp.sum(grown(x)[:0]) + wnp.sum(x))),
    }


@pytest.mark.parametrize("name", cases())
def test_reverse_mode_of_while(gpu: tuple[Device, SimulatedDriver], name: str) -> None:
    device, _ = gpu
    f = cases()[name]
    for _ in range(2):
        found = f(weft.device_put(X, device))
        for one, other in zip(weft.tree.leaves(found), weft.tree.leaves(f(X)), strict=True):
            assert one.device is device
            rtol = 5e-2 if name == "half" else 1e-3  # each iteration doubles what functions differ by
            np.testing.assert_allclose(
                np.asarray(one).astype(np.float32), np.asarray(other).astype(np.float32), rtol=rtol
            )


def test_entries_stay_on_the_gpu(gpu: tuple[Device, SimulatedDriver]) -> None:
    """The host reads handles, positions and predicates, all of them short. Libraries are asked for what they know."""
    device, driver = gpu
    driver.with_libraries("cublasLt", "cudnn", "cublas", "cufft", "cusolver")
    f = weft.jit(weft.grad(lambda x: wnp.sum(grown(x) ** 2)))
    x = weft.device_put(np.repeat(X, 100) / 100, device)
    f(x)
    driver.calls.clear()
    f(x)
    moved = [int(c.split()[1]) for c in driver.calls if c.startswith(("in ", "out "))]
    assert moved and max(moved) <= 16

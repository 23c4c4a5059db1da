"""Making lines: one text jitted by Weft and by JAX, and what NumPy and PyTorch have for the same work."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from faces import PEERS, Faces, installed, load
from measure import Line

from weft.runtime.cpu import tiers

Function = Callable[..., Any]


class Disagreement(AssertionError):
    """Two sides of a line do not compute the same."""


def finished(f: Faces, call: Callable[[], Any]) -> Callable[[], Any]:
    """`call` until its result is there, with as little around it as the library needs. Weft's calls are synchronous;
    JAX works on behind the call's back, and blocking on one array is cheaper than on a tree."""
    if f.top.__name__ == "weft":
        return call
    if hasattr(call(), "block_until_ready"):
        return lambda: call().block_until_ready()
    return lambda: f.top.block_until_ready(call())


class Bench:
    """The libraries of a run. `small` is for tests: tiny arrays, whose times mean nothing."""

    def __init__(self, peers: Sequence[str] = PEERS, small: bool = False) -> None:
        self.peers = tuple(peer for peer in peers if installed(peer))
        self.small = small
        self.weft = load("weft")
        self.jax: Faces | None = load("jax") if "jax" in self.peers else None
        self.torch: Any = importlib.import_module("torch") if "torch" in self.peers else None
        self.rng = np.random.default_rng(0)
        self.differences: dict[str, tuple[str, ...]] = {}

    def size(self, full: int, small: int) -> int:
        return small if self.small else full

    def normal(self, *shape: int) -> np.ndarray:
        return self.rng.normal(size=shape).astype(np.float32)

    def line(
        self,
        name: str,
        write: Callable[[Faces], Function],
        *args: Any,
        at_most: float | None = None,
        repeats: int = 20,
        numpy: Function | None = None,
        torch: Callable[[Any], Function] | None = None,
        differs: tuple[str, ...] = (),
    ) -> Line:
        """A line of compiled, warm functions. `write` gives Weft's and JAX's; `numpy` takes the arguments as they are,
        `torch` is a function of the module. Sides in `differs` compute other numbers (random ones, for example)."""
        sides: dict[str, Callable[[], Any]] = {"weft": self._ours(write, args)}
        if self.jax is not None:
            sides["jax"] = self._theirs(self.jax, write, args)
        if numpy is not None and "numpy" in self.peers:
            sides["numpy"] = lambda: numpy(*args)
        if torch is not None and self.torch is not None:
            sides["torch"] = self._by_torch(torch, args)
        self.differences[name] = differs
        return Line(name, sides, at_most, repeats)

    def _ours(self, write: Callable[[Faces], Function], args: Any) -> Callable[[], Any]:
        f = self.weft
        function, own = f.top.jit(write(f)), f.top.tree.map(f.np.asarray, args)
        for _ in range(3):  # Weft replaces its first code by better one when a function is called again
            function(*own)
        tiers.wait()
        return finished(f, lambda: function(*own))

    def _theirs(self, f: Faces, write: Callable[[Faces], Function], args: Any) -> Callable[[], Any]:
        function, own = f.top.jit(write(f)), f.top.tree.map(f.np.asarray, args)
        return finished(f, lambda: function(*own))

    def _by_torch(self, write: Callable[[Any], Function], args: Any) -> Callable[[], Any]:
        own = [self.torch.from_numpy(np.asarray(x)) for x in args]
        own = [x.long() if x.dtype == self.torch.int32 else x for x in own]  # it indexes by int64
        function = write(self.torch)
        return lambda: function(*own)

    def check(self, line: Line) -> None:
        """All sides give the values that Weft gives, or there is a `Disagreement`."""
        flat = self.weft.top.tree.leaves
        ours = [np.asarray(leaf) for leaf in flat(line.sides["weft"]())]
        for side, function in line.sides.items():
            if side == "weft" or side in self.differences.get(line.name, ()):
                continue
            theirs = [np.asarray(leaf) for leaf in flat(function())]
            if len(theirs) != len(ours):
                raise Disagreement(f"{line.name}: {len(ours)} results by Weft, {len(theirs)} by {side}")
            for a, b in zip(ours, theirs, strict=True):
                loose = 3e-2 if "bfloat16" in str(a.dtype) else 2e-3
                a, b = (x.astype(np.complex128 if np.iscomplexobj(x) else np.float64) for x in (a, b))
                scale = max(1.0, float(np.abs(b).max(initial=0)))
                if a.shape != b.shape or not np.allclose(a, b, loose, loose * scale):
                    raise Disagreement(f"{line.name}: Weft and {side} differ")

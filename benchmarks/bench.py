"""Construction of benchmarks: the same source jitted by Weft and by JAX, and equivalents in NumPy and PyTorch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from libraries import PEERS, Library, installed, load
from measure import Line

from weft.runtime.cpu import tiers

Function = Callable[..., Any]


class Disagreement(AssertionError):
    """Two libraries compute different results."""


def finished(f: Library, call: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that runs `call` and waits for its result, with the least overhead: blocking on one array is
    cheaper than on a tree."""
    if hasattr(call(), "block_until_ready"):
        return lambda: call().block_until_ready()
    return lambda: f.top.block_until_ready(call())


class Bench:
    """Libraries of a run. `small` is for tests: tiny arrays, whose times are meaningless."""

    def __init__(self, peers: Sequence[str] = PEERS, small: bool = False) -> None:
        self.peers = tuple(peer for peer in peers if installed(peer))
        self.small = small
        self.weft = load("weft")
        self.jax: Library | None = load("jax") if "jax" in self.peers else None
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
        write: Callable[[Library], Function],
        *args: Any,
        at_most: float | None = None,
        repeats: int = 20,
        numpy: Function | None = None,
        torch: Callable[[Any], Function] | None = None,
        differs: tuple[str, ...] = (),
    ) -> Line:
        """Make a benchmark of compiled, warm functions. `write` returns the function of Weft and of JAX, `numpy` takes
        NumPy arrays, `torch` takes the module and returns a function. The results of libraries in `differs` are not
        compared (random numbers, for example)."""
        sides: dict[str, Callable[[], Any]] = {"weft": self._ours(write, args)}
        if self.jax is not None:
            sides["jax"] = self._theirs(self.jax, write, args)
        if numpy is not None and "numpy" in self.peers:
            sides["numpy"] = lambda: numpy(*args)
        if torch is not None and self.torch is not None:
            sides["torch"] = self._by_torch(torch, args)
        self.differences[name] = differs
        return Line(name, sides, at_most, repeats)

    def _ours(self, write: Callable[[Library], Function], args: Any) -> Callable[[], Any]:
        f = self.weft
        function, own = f.top.jit(write(f)), f.top.tree.map(f.np.asarray, args)
        for _ in range(3):  # Weft recompiles with optimization when a function is called again
            function(*own)
        tiers.wait()
        return finished(f, lambda: function(*own))

    def _theirs(self, f: Library, write: Callable[[Library], Function], args: Any) -> Callable[[], Any]:
        function, own = f.top.jit(write(f)), f.top.tree.map(f.np.asarray, args)
        return finished(f, lambda: function(*own))

    def _by_torch(self, write: Callable[[Any], Function], args: Any) -> Callable[[], Any]:
        own = [self.torch.from_numpy(np.asarray(x)) for x in args]
        own = [x.long() if x.dtype == self.torch.int32 else x for x in own]  # PyTorch indexes by int64
        function = write(self.torch)
        return lambda: function(*own)

    def check(self, line: Line) -> None:
        """Raise `Disagreement` unless all libraries return the values that Weft returns."""
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

"""Devices of results, and whether they are committed: the same lines with both libraries on four CPU devices, each in a
process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

# Names: lib, np (its numpy), onp (NumPy), d (the devices), x (on the default device), c1 and c2 (committed to devices 1
# and 2), u3 (on device 3 by default_device, so not committed), K (a sharding for device 2), under (calls with
# device 3 as the default one).
LINES = [
    "x",
    "c1",
    "u3",
    # operations
    "x + 1",
    "c1 + 1",
    "c1 + x",
    "x + c1",
    "c1 + u3",
    "u3 + 1",
    "u3 + x",
    "c1 + onp.ones(3, onp.float32)",
    "c1 + c2",
    "np.where(c1 > 0, x, u3)",
    "np.stack([x, c1])",
    "np.array([c1[0], 1.0])",
    "c1[0]",
    "list(c1)",
    "c1.astype(int)",
    "c1.T",
    "x[np.argmax(c1)]",
    "x.at[0].set(c1[0])",
    "x.at[np.argmax(c1)].set(0.0)",
    "np.nonzero(c1)",
    "np.unique(c1)",
    "np.zeros_like(c1)",
    "np.full_like(c1, 2.0)",
    "np.ones_like(u3)",
    "np.array(c1)",
    "np.asarray(c1)",
    "np.copy(c1)",
    "lib.random.split(lib.device_put(lib.random.key(0), d[2]))",
    "lib.random.normal(lib.device_put(lib.random.key(0), d[2]), (2,))",
    # calls
    "lib.jit(lambda a: a + 1)(x)",
    "lib.jit(lambda a: a + 1)(c1)",
    "lib.jit(lambda a: a)(u3)",
    "lib.jit(lambda a, b: (a, b))(x, c1)",
    "lib.jit(lambda a, b: a + b)(c1, c2)",
    "lib.jit(lambda a, b: a + 1)(c1, c2)",
    "lib.jit(lambda a: (a, np.ones(3), 2.0))(c1)",
    "lib.jit(lambda a: a + c1)(x)",
    "lib.jit(lambda a: a + c1)(c2)",
    "lib.grad(lambda a: np.sin(a).sum())(c1)",
    "lib.vmap(np.sin)(c1)",
    "lib.lax.scan(lambda c, a: (c + a, a), np.float32(0), c1)",
    "lib.lax.cond(True, lambda a: a, lambda a: a + 1, c1)",
    "lib.lax.cond(True, lambda a, b: a, lambda a, b: b, c1, c2)",
    "lib.lax.fori_loop(0, 3, lambda i, a: a + 1, c1)",
    "lib.jit(lambda a: a + 1, donate_argnums=0)(lib.device_put(x, d[3]))",
    "lib.jit(lambda a: a + 1).lower(c1).compile()(c1)",
    # device_put
    "lib.device_put(x)",
    "lib.device_put(c1)",
    "lib.device_put(onp.ones(3))",
    "lib.device_put(x, d[0])",
    "lib.device_put(c1, d[2])",
    "lib.device_put(c1, K)",
    "lib.device_put({'a': x, 'b': c1}, {'a': d[1], 'b': d[2]})",
    "c1.to_device(d[2])",
    "lib.jit(lambda a: lib.device_put(a, d[1]))(x)",
    "lib.jit(lambda a: lib.device_put(a, d[1]) + 1)(c2)",
    "lib.grad(lambda a: lib.device_put(a, d[1]).sum())(x)",
    "lib.grad(lambda a: lib.device_put(a, d[1]).sum())(c2)",
    "lib.jit(lib.grad(lambda a: lib.device_put(a, d[1]).sum()))(x)",
    "lib.jvp(lambda a: lib.device_put(a, d[1]), (x,), (x,))",
    "lib.vmap(lambda a: lib.device_put(a, d[1]))(x)",
    "lib.device_put(c1, d[2], may_alias=True, donate=True)",
    # making
    "np.zeros(3, device=d[2])",
    "np.zeros(3, device=K)",
    "np.array([1, 2], device=d[2])",
    "np.arange(3, device=d[2])",
    "np.linspace(0, 1, 3, device=d[2])",
    "np.eye(2, device=d[2])",
    "np.zeros_like(c1, device=d[3])",
    "np.fft.fftfreq(4, device=d[2])",
    # copies
    "copy.copy(c1)",
    "copy.deepcopy(c1)",
    "pickle.loads(pickle.dumps(c1))",
    # the default device
    "under(lambda: np.ones(3))",
    "under(lambda: x + 1)",
    "under(lambda: c1 + 1)",
    "under(lambda: np.asarray(x))",
    "under(lambda: lib.device_put(x))",
    "under(lambda: lib.device_put(onp.ones(3)))",
    "under(lambda: lib.jit(lambda a: a)(x))",
    "under(lambda: lib.random.key(0))",
    "under(lambda: np.zeros_like(x))",
    "under(lambda: np.reshape(x, (3, 1)))",
    "under(lambda: np.sin(2.0))",
    "under(lambda: np.arange(3))",
    "lib.default_device(3)",
    # devices of calls
    "lib.jit(lambda a: a + 1, device=d[2])(x)",
    "lib.jit(lambda a: a + 1, device=d[2])(c1)",
    "lib.jit(lambda: np.ones(3), device=d[2])()",
    "lib.jit(lambda a: a + 1, backend='cpu')(c1)",
    "lib.jit(lambda a: a + 1, backend='cpu', device=d[1])(c1)",
    # the number of devices
    "lib.device_count(), lib.local_device_count(), len(lib.local_devices())",
    "repr(lib.devices()[3]), str(lib.devices()[3])",
    "lib.config.update('jax_num_cpu_devices', 8)",
    "repr(c1.sharding)",
]

PROGRAM = """
import copy, json, pickle, sys, warnings
import numpy as onp
warnings.simplefilter("ignore")
if sys.argv[1] == "jax":
    import jax as lib, jax.numpy as np
else:
    import weft as lib, weft.numpy as np
lib.config.update("jax_num_cpu_devices", 4)
d = lib.devices()
x = np.ones(3)
c1, c2 = lib.device_put(x, d[1]), lib.device_put(x, d[2])
K = lib.sharding.SingleDeviceSharding(d[2])
def under(f):
    with lib.default_device(d[3]):
        return f()
u3 = under(lambda: np.ones(3))
def seen(line):
    try:
        made = lib.tree.leaves(eval(line))
    except Exception as error:
        return next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")
    return [(m.device.id, bool(m.committed)) if hasattr(m, "committed") else m for m in made]
print(json.dumps({line: seen(line) for line in json.load(sys.stdin)}))
"""


def _seen(library: str) -> dict[str, Any]:
    alone = {k: v for k, v in os.environ.items() if k not in ("WEFT_NUM_CPU_DEVICES", "XLA_FLAGS")}
    command = [sys.executable, "-c", PROGRAM, library]
    done = subprocess.run(command, input=json.dumps(LINES), capture_output=True, text=True, check=True, env=alone)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def seen() -> tuple[dict[str, Any], dict[str, Any]]:
    return _seen("jax"), _seen("weft")


@pytest.mark.parametrize("line", LINES)
def test_placement(line: str, seen: tuple[dict[str, Any], dict[str, Any]]) -> None:
    theirs, ours = seen
    assert ours[line] == theirs[line]

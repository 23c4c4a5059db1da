"""Join the others, and sum over all devices. Arguments: a folder; then, if they are not found in the environment, the
address, count and index; the seconds to wait; and "large" to sum a megabyte for each process."""

from __future__ import annotations

import pathlib
import sys

import numpy as onp

import weft
import weft.numpy as np
from weft.sharding import NamedSharding, PartitionSpec as P

FOLDER, PLACE = pathlib.Path(sys.argv[1]), sys.argv[2:5]
place = (PLACE[0], int(PLACE[1]), int(PLACE[2])) if PLACE else ()
weft.distributed.initialize(*place, initialization_timeout=int(sys.argv[5]) if len(sys.argv) > 5 else 60)
mesh = weft.make_mesh((weft.device_count(),), ("x",))
size = 1 << 19 if "large" in sys.argv else 4
values = onp.full((weft.device_count(), size), 1.0, onp.float32) * (1 + onp.arange(weft.device_count())[:, None])
data = weft.make_array_from_callback(values.shape, NamedSharding(mesh, P("x")), lambda i: values[i])
total = weft.jit(lambda a: np.sum(a, axis=0), out_shardings=NamedSharding(mesh, P()))(data)
found = set(onp.asarray(total.addressable_data(0)).tolist())
assert len(found) == 1, found
(FOLDER / f"sum {found.pop()} in {weft.process_index()} of {weft.process_count()}").write_text("done")

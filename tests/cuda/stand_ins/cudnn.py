"""cuDNN's graphs: descriptors with attributes, and plans that compute their operations one after the other."""

from __future__ import annotations

import ctypes
import itertools
from typing import Any, ClassVar

import numpy as np

from tests.cuda.stand_ins.objects import StandIn
from weft.base import dtypes

TYPES = {0: "float32", 1: "float64", 2: "float16", 3: "int8", 4: "int32", 9: "bfloat16", 10: "int64", 11: "bool"}
# The type of each attribute that may be set, by the kind of descriptor.
INT64, FLOAT, BOOLEAN, DATA_TYPE, HANDLE, POINTER, DESCRIPTOR, CHARACTER = 3, 4, 2, 1, 0, 6, 15, 24
ATTRIBUTES: dict[int, dict[int, int]] = {
    0: {0: 14, 1: DATA_TYPE, 2: 10, 9: INT64},
    1: {100: DATA_TYPE, 101: 7, 102: INT64, 103: INT64, 104: INT64, 105: INT64, 106: INT64},
    4: {200: 8, 201: DESCRIPTOR},
    5: {400: HANDLE, 401: DESCRIPTOR, 405: CHARACTER},
    10: {700: FLOAT, 701: FLOAT, 702: DESCRIPTOR, 703: DESCRIPTOR, 704: DESCRIPTOR, 705: DESCRIPTOR},
    11: {712: FLOAT, 713: FLOAT, 714: DESCRIPTOR, 715: DESCRIPTOR, 716: DESCRIPTOR, 717: DESCRIPTOR},
    12: {706: FLOAT, 707: FLOAT, 708: DESCRIPTOR, 709: DESCRIPTOR, 710: DESCRIPTOR, 711: DESCRIPTOR},
    13: {750: DESCRIPTOR, 751: DESCRIPTOR, 752: DESCRIPTOR, 753: DESCRIPTOR, 758: DESCRIPTOR},
    15: {800: HANDLE, 801: DESCRIPTOR},
    16: {1000: INT64, 1001: POINTER, 1003: POINTER},
    17: {900: INT64, 901: DATA_TYPE, 902: INT64, 903: INT64, 906: INT64, 907: BOOLEAN, 908: BOOLEAN},
    18: {1500: DATA_TYPE},
    19: {1520: DESCRIPTOR, 1521: DESCRIPTOR, 1522: DESCRIPTOR, 1523: DESCRIPTOR},
    21: {1600: 18, 1601: DATA_TYPE},
    22: {1610: DESCRIPTOR, 1611: DESCRIPTOR, 1612: DESCRIPTOR},
    31: {2200: DESCRIPTOR, 2201: DESCRIPTOR},
}
NAMES = {10: "forward", 11: "weights", 12: "data", 13: "pointwise", 19: "matmul", 22: "reduction", 31: "reshape"}
# What is known of the engines that are proposed: that one is not deterministic, that the next uses tensor cores.
NOTES = ([4], [0], [], [])
# An engine whose relu of nan is 0, whatever is asked for.
WITHOUT_NANS = 3
UNARY = {13: np.exp, 15: np.log, 21: lambda x: x}
BINARY = {0: np.add, 1: np.multiply, 3: np.maximum, 6: np.divide, 9: np.subtract, 303: np.greater_equal}


class Object:
    """A descriptor."""

    def __init__(self, kind: int) -> None:
        self.kind, self.finished = kind, False
        self.values: dict[int, Any] = {}

    def one(self, name: int) -> Any:
        (value,) = self.values[name]
        return value


class Cudnn(StandIn):
    """The library. `plans` are those that it has written as text, whatever process that was."""

    plans: ClassVar[dict[bytes, Object]] = {}
    asked = 0  # how often engines were asked for

    def cudnnGetVersion(self) -> int:
        return 91900

    def cudnnGetLastErrorString(self, text: Any, size: int) -> None:
        text.value = b"a reason"

    def cudnnCreate(self, handle: Any) -> None:
        self.new(handle, "handle")

    def cudnnSetStream(self, handle: Any, stream: Any) -> None:
        assert self.object(handle) == "handle"

    def cudnnBackendCreateDescriptor(self, kind: int, descriptor: Any) -> None:
        self.new(descriptor, Object(kind))

    def cudnnBackendDestroyDescriptor(self, descriptor: Any) -> None:
        del self._objects[descriptor.value]

    def cudnnBackendSetAttribute(self, descriptor: Any, name: int, type_: int, count: int, values: Any) -> None:
        found = self.object(descriptor)
        assert not found.finished and ATTRIBUTES[found.kind][name] == type_ and len(values) == count
        found.values[name] = [self.object(v) for v in values] if type_ == DESCRIPTOR else list(values)

    def cudnnBackendFinalize(self, descriptor: Any) -> int:
        found = self.object(descriptor)
        referred = [v for values in found.values.values() for v in values if isinstance(v, Object)]
        assert all(v.finished for v in referred)
        if found.kind == 5 and 405 in found.values:
            config = self.plans.get(bytes(found.values[405]))
            if config is None:
                return 3000  # not what this library has written
            found.values[401] = [config]
        found.finished = True
        if found.kind == 17:
            assert len(found.values[902]) == len(found.values[903])
        return 0

    def cudnnBackendGetAttribute(
        self, descriptor: Any, name: int, type_: int, most: int, count: Any, values: Any
    ) -> None:
        found = self.object(descriptor)
        if name == 405:
            assert type_ == CHARACTER
            content = f"plan {id(found.one(401))}".encode()
            self.plans[content] = found.one(401)
            count._obj.value = len(content)
            if most:
                values.raw = content
            return
        if name == 202:  # engines with settings
            assert type_ == DESCRIPTOR
            self.asked += 1
            for n in range(min(most, len(NOTES))):
                config = self.object(values[n])
                config.values, config.finished = {"graph": found.one(201), "index": n}, True
            count._obj.value = len(NOTES)
            return
        if name == 300:
            engine = self.object(values[0])
            engine.values, engine.finished = found.values, True
            count._obj.value = 1
            return
        results = {
            1303: lambda: NOTES[found.values["index"]],
            1301: lambda: [found.values["index"]],
            402: lambda: [100 * (found.one(401).values["index"] + 1)],
        }[name]()
        assert type_ == {1303: 11, 1301: 3, 402: 3}[name]
        values[: len(results)] = results
        count._obj.value = len(results)

    def cudnnBackendExecute(self, handle: Any, plan: Any, pack: Any) -> None:
        config = self.object(plan).one(401)
        variant = self.object(pack)
        addresses = dict(zip(variant.values[1000], variant.values[1001], strict=True))
        index = config.values["index"]
        self.driver.view(variant.one(1003), 100 * (index + 1))[:] = 0xFF
        run = Run(self, addresses, index)
        for operation in config.values["graph"].values[801]:
            getattr(run, NAMES[operation.kind])(operation)
        self.calls.append([NAMES[o.kind] for o in config.values["graph"].values[801]])


class Run:
    """One run of a plan: values of virtual tensors by their descriptors."""

    def __init__(self, lib: Cudnn, addresses: dict[int, int], engine: int) -> None:
        self.lib, self.addresses, self.engine = lib, addresses, engine
        self.values: dict[int, np.ndarray] = {}

    def memory(self, tensor: Object) -> np.ndarray:
        dtype = dtypes.as_dtype(TYPES[tensor.one(901)])
        address = self.addresses[tensor.one(906)]
        assert address % tensor.one(900) == 0
        return self.lib.array(address, dtype, tensor.values[902], tensor.values[903])

    def read(self, tensor: Object) -> np.ndarray:
        if tensor.values.get(908):
            assert tensor.one(901) == 0
            return np.full([1] * len(tensor.values[902]), ctypes.c_float.from_address(self.addresses[tensor.one(906)]))
        found = self.values[id(tensor)] if tensor.values.get(907) else self.memory(tensor)
        assert list(found.shape) == tensor.values[902]
        return found.astype(np.float64) if found.dtype.kind in "fV" else found

    def write(self, tensor: Object, value: np.ndarray) -> None:
        storage = dtypes.storage(dtypes.as_dtype(TYPES[tensor.one(901)]))
        value = np.broadcast_to(value, tensor.values[902]).astype(storage)
        if tensor.values.get(907):
            self.values[id(tensor)] = value
        else:
            self.memory(tensor)[...] = value

    # -- convolutions: dimensions are batch, features, spatial ---------------------------------------------------------

    def windows(self, description: Object, operand: list[int], kernel: list[int], out: list[int]) -> Any:
        """For each element of the kernel, the slices of the padded operand that results read."""
        d = description.values
        assert d[101] == [1] and d[100] == [0] and d[106] == [len(d[103])]
        count = [
            (size + low + high - (k - 1) * dilation - 1) // stride + 1
            for size, k, stride, dilation, low, high in zip(
                operand[2:], kernel[2:], d[103], d[102], d[105], d[104], strict=True
            )
        ]
        assert count == out[2:] and min(*d[104], *d[105]) >= 0 and kernel[1] == operand[1] and kernel[0] == out[1]
        padding = [(0, 0), (0, 0), *zip(d[105], d[104], strict=True)]
        for position in itertools.product(*(range(k) for k in kernel[2:])):
            cut = [
                slice(p * dilation, p * dilation + (n - 1) * stride + 1, stride)
                for p, n, stride, dilation in zip(position, out[2:], d[103], d[102], strict=True)
            ]
            yield padding, (slice(None), slice(None), *position), (slice(None), slice(None), *cut)

    def sizes(self, *tensors: Object) -> list[list[int]]:
        return [t.values[902] for t in tensors]

    def forward(self, operation: Object) -> None:
        description, w, x, y = (operation.one(n) for n in (702, 703, 704, 705))
        operand, kernel, out = self.read(x), self.read(w), np.zeros(y.values[902])
        for padding, tap, cut in self.windows(description, *self.sizes(x, w, y)):
            out += np.einsum("nc...,kc->nk...", np.pad(operand, padding)[cut], kernel[tap])
        self.write(y, out)

    def data(self, operation: Object) -> None:
        description, w, dx, dy = (operation.one(n) for n in (708, 709, 710, 711))
        cotangent, kernel, result = self.read(dy), self.read(w), None
        for padding, tap, cut in self.windows(description, *self.sizes(dx, w, dy)):
            if result is None:
                result = np.pad(np.zeros(dx.values[902]), padding)
            result[cut] += np.einsum("nk...,kc->nc...", cotangent, kernel[tap])
        assert result is not None
        inside = tuple(slice(low, low + n) for (low, _), n in zip(padding, dx.values[902], strict=True))
        self.write(dx, result[inside])

    def weights(self, operation: Object) -> None:
        description, dw, x, dy = (operation.one(n) for n in (714, 715, 716, 717))
        operand, cotangent, result = self.read(x), self.read(dy), np.zeros(dw.values[902])
        for padding, tap, cut in self.windows(description, *self.sizes(x, dw, dy)):
            summed = [0, *range(2, operand.ndim)]
            result[tap] = np.tensordot(cotangent, np.pad(operand, padding)[cut], (summed, summed))
        self.write(dw, result)

    # -- what attention is made of -------------------------------------------------------------------------------------

    def pointwise(self, operation: Object) -> None:
        description = operation.one(750)
        mode, x, y = description.one(0), operation.one(751), operation.one(753)
        operands = [self.read(x), *(self.read(operation.one(n)) for n in (752, 758) if n in operation.values)]
        if mode == 501:
            axis = description.one(9)
            shape = [1] * len(y.values[902])
            shape[axis] = y.values[902][axis]
            self.write(y, np.arange(shape[axis]).reshape(shape))
        elif mode == 601:
            self.write(y, np.where(operands[2], operands[0], operands[1]))
        elif mode == 100:
            keeps = description.values.get(2) == [1] and self.engine != WITHOUT_NANS
            self.write(y, (np.maximum if keeps else np.fmax)(operands[0], 0))
        elif mode in UNARY:
            (only,) = operands
            self.write(y, UNARY[mode](only))
        else:
            first, second = operands
            self.write(y, BINARY[mode](first, second))

    def matmul(self, operation: Object) -> None:
        a, b, c = (operation.one(n) for n in (1520, 1521, 1522))
        assert operation.one(1523).one(1500) == 0
        self.write(c, self.read(a) @ self.read(b))

    def reduction(self, operation: Object) -> None:
        x, y, description = (operation.one(n) for n in (1610, 1611, 1612))
        axes = tuple(n for n, (i, o) in enumerate(zip(x.values[902], y.values[902], strict=True)) if i != o)
        function = {0: np.sum, 3: np.max}[description.one(1600)]
        self.write(y, function(self.read(x), axis=axes, keepdims=True))

    def reshape(self, operation: Object) -> None:
        x, y = operation.one(2200), operation.one(2201)
        assert sorted(x.values[902]) == sorted(y.values[902])
        self.write(y, self.read(x).swapaxes(-1, -2))

"""Runs the LLVM text of one block of a GPU, all of its threads at once, on NumPy arrays: what `GroupMatmul` becomes is
checked without a GPU.

Threads that are behind go first, so that those of a branch meet again after it. Memory is checked: a thread that reads
what another one has written, or writes what another one has read, must have waited at a barrier in between; what is
copied asynchronously is not there before its thread has waited for the copy, and every access is at a multiple of its
alignment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

DTYPES: dict[str, Any] = {
    "i1": np.bool_, "i8": np.uint8, "i16": np.uint16, "i32": np.uint32, "i64": np.uint64,
    "half": np.float16, "bfloat": ml_dtypes.bfloat16, "float": np.float32, "double": np.float64, "ptr": np.uint64,
}  # fmt: skip
SIGNED: dict[Any, Any] = {np.uint8: np.int8, np.uint16: np.int16, np.uint32: np.int32, np.uint64: np.int64}
WARP = 32
# Where memory begins that all blocks share.
GLOBAL = 1 << 32
# What is in memory that a copy is under way to.
POISON = 0xA5

Type = tuple[str, int]  # of an element, and how many


class Block:
    """One block of so many threads with the index `block`. Buffers are changed in place."""

    def __init__(self, text: str, buffers: Sequence[np.ndarray], threads: int, block: int) -> None:
        self.threads, self.block = threads, block
        self.everybody = np.arange(threads)
        self.memory, self.starts = [], []
        start = GLOBAL
        for buffer in buffers:
            flat = buffer.reshape(-1).view(np.uint8)
            self.memory.append(flat)
            self.starts.append(start)
            start += -(-len(flat) // 256) * 256 + 256
        sizes = re.findall(r'^@"?([\w.]+)"? = .*addrspace\(3\) global \[(\d+) x i8\]', text, re.M)
        self.shared: dict[str, int] = {}
        size = 0
        for name, count in sizes:
            self.shared[name] = size
            size += -(-(int(count) or 1 << 18) // 256) * 256
        self.local = np.full(size, POISON, np.uint8)
        self.epoch = 0
        # Who wrote and who read each byte last (-2: several), and when.
        self.writer, self.written = np.full(size, -1), np.full(size, -1)
        self.reader, self.read_at = np.full(size, -1), np.full(size, -1)
        self.values: dict[str, Any] = {}
        # Copies under way of each thread, (target, bytes): those that were committed, in groups, and the last ones.
        self.committed: list[list[list[tuple[int, np.ndarray]]]] = [[] for _ in range(threads)]
        self.open: list[list[tuple[int, np.ndarray]]] = [[] for _ in range(threads)]
        self.mmas = 0
        # When each thread last made its copies visible to the units.
        self.fenced = np.full(threads, -1)
        # What is read by products that nobody has waited for.
        self.multiplying: list[np.ndarray] = []
        self._parse(text)

    def _parse(self, text: str) -> None:
        (head, body) = re.search(r"define ptx_kernel void @\w+\((.*?)\).*?\{\n(.*?)\n\}", text, re.S).groups()  # type: ignore[union-attr]
        names = re.findall(r"%(\w+)", head)
        for name, start in zip(names, self.starts, strict=True):
            self.values["%" + name] = np.full(self.threads, start, np.uint64)
        self.labels: dict[str, int] = {}
        self.blocks: list[list[str]] = []
        for line in body.splitlines():
            if line.endswith(":"):
                self.labels[line[:-1]] = len(self.blocks)
                self.blocks.append([])
            else:
                self.blocks[-1].append(line.strip())
        self.names = list(self.labels)

    def run(self) -> None:
        at = np.zeros(self.threads, int)
        came = np.full(self.threads, -1)
        while (at >= 0).any():
            first = at[at >= 0].min()
            active = np.flatnonzero(at == first)
            following = self._run_block(first, active, came)
            came[active], at[active] = first, following

    def _run_block(self, index: int, active: np.ndarray, came: np.ndarray) -> np.ndarray:
        found: dict[str, Any] = {}
        for line in self.blocks[index]:
            if " = phi " in line:  # all of them at once
                name, rest = line.split(" = phi ")
                found[name] = self._phi(rest, active, came)
                continue
            for name, value in found.items():
                self._set(name, value, active)
            found = {}
            if line.startswith("br label"):
                return np.full(len(active), self.labels[line.split("%")[1]])
            if line.startswith("br i1"):
                condition, then, otherwise = re.match(r"br i1 (\S+), label %(\w+), label %(\w+)", line).groups()  # type: ignore[union-attr]
                holds = self._value(condition, ("i1", 1), active)
                return np.where(holds, self.labels[then], self.labels[otherwise])
            if line == "ret void":
                return np.full(len(active), -1)
            name, _, instruction = line.rpartition(" = ") if line.startswith("%") else ("", "", line)
            value = self._instruction(instruction, active)
            if name:
                self._set(name, value, active)
        raise AssertionError(f"the block {self.names[index]} has no end")

    # -- values ----------------------------------------------------------------------------------------------------

    def _set(self, name: str, value: Any, active: np.ndarray) -> None:
        if isinstance(value, list):
            self.values[name] = value
            return
        known = self.values.get(name)
        if known is None or known.dtype != value.dtype:
            known = self.values[name] = np.zeros((self.threads, *value.shape[1:]), value.dtype)
        known[active] = value

    def _type(self, text: str) -> Type:
        vector = re.fullmatch(r"<(\d+) x (\w+)>", text)
        if vector:
            return vector[2], int(vector[1])
        return ("ptr" if text.startswith("ptr") else text), 1

    def _value(self, text: str, type: Type, active: np.ndarray) -> np.ndarray:
        dtype, count = DTYPES[type[0]], type[1]
        shape = (len(active),) if count == 1 else (len(active), count)
        if text.startswith("%"):
            return self.values[text][active]
        if text.startswith("@"):
            return np.full(shape, self.shared[text.strip('@"')], np.uint64)
        if text in ("zeroinitializer", "poison", "undef"):
            return np.zeros(shape, dtype)
        if text.startswith("splat ("):
            return np.full(shape, self._constant(text[7:-1].split()[-1], type[0]))
        if text.startswith("<"):
            return np.array([[self._constant(t.split()[-1], type[0]) for t in text[1:-1].split(", ")]] * len(active))
        return np.full(shape, self._constant(text, type[0]))

    def _constant(self, text: str, element: str) -> Any:
        dtype = DTYPES[element]
        if text in ("true", "false"):
            return np.bool_(text == "true")
        if text.startswith("0x"):
            return np.array(int(text, 16), np.uint64).view(np.float64).astype(dtype)[()]
        if element[0] == "i":
            return np.array(int(text) & (1 << 64) - 1, np.uint64).astype(dtype)[()]
        return dtype(float(text))

    def _typed(self, text: str, active: np.ndarray) -> np.ndarray:
        """A type and a value after it."""
        match = re.fullmatch(r"(<\d+ x \w+>|ptr addrspace\(\d\)|\w+) (.*)", text.strip())
        assert match, text
        return self._value(match[2], self._type(match[1]), active)

    def _phi(self, text: str, active: np.ndarray, came: np.ndarray) -> np.ndarray:
        type, rest = re.match(r"(<\d+ x \w+>|\S+) (.*)", text).groups()  # type: ignore[union-attr]
        result = None
        for value, label in re.findall(r"\[ (.*?), %(\w+) \]", rest):
            from_here = came[active] == self.labels[label]
            if from_here.any():
                chosen = self._value(value, self._type(type), active[from_here])
                if result is None:
                    result = np.zeros((len(active), *chosen.shape[1:]), chosen.dtype)
                result[from_here] = chosen
        assert result is not None
        return result

    # -- instructions ----------------------------------------------------------------------------------------------

    def _instruction(self, text: str, active: np.ndarray) -> Any:
        op, _, rest = text.partition(" ")
        if op == "call":
            return self._call(rest, active)
        rest = re.sub(r"^(nsw|nuw|inbounds) ", "", rest)
        if op == "getelementptr":
            element, pointer, index = split(rest)
            size = np.dtype(DTYPES[self._type(element)[0]]).itemsize * self._type(element)[1]
            base, offset = self._typed(pointer, active), self._typed(index, active)
            return base + (signed(offset).astype(np.int64) * size).astype(np.uint64)
        if op == "load":
            type, pointer, align = split(rest)
            element, count = self._type(type)
            dtype = np.dtype(DTYPES[element])
            data = self._read(self._typed(pointer, active), dtype.itemsize * count, int(align.split()[1]), active)
            return data.view(dtype).reshape((len(active), count)[: 1 + (count > 1)])
        if op == "store":
            value, pointer, align = split(rest)
            stored = self._typed(value, active)
            data = np.ascontiguousarray(stored).reshape(len(active), -1).view(np.uint8)
            self._write(self._typed(pointer, active), data, int(align.split()[1]), active)
            return None
        if op in ("icmp", "fcmp"):
            predicate, type, operands = rest.split(" ", 2) if "<" not in rest else self._vector_comparison(rest)
            a, b = (self._value(t, self._type(type), active) for t in split(operands))
            if predicate[0] == "s":
                a, b = signed(a), signed(b)
            name = predicate[-2:]
            return {
                "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
                "ge": np.greater_equal,
            }[name](a, b)  # fmt: skip
        if op == "select":
            condition, a, b = (self._typed(t, active) for t in split(rest))
            return np.where(condition if condition.ndim == a.ndim else condition[:, None], a, b)
        if op in ("zext", "sext", "trunc", "fptrunc", "fpext", "bitcast", "addrspacecast", "ptrtoint"):
            value, type = rest.rsplit(" to ", 1)
            return self._cast(op, self._typed(value, active), self._type(type))
        if op == "extractvalue":
            _, name, index = re.match(r"(\{.*?\}) (%\w+), (\d+)", rest).groups()  # type: ignore[union-attr]
            return self.values[name][int(index)][active]
        if op == "extractelement":
            vector, index = split(rest)
            return self._typed(vector, active)[:, int(index.split()[1])]
        if op == "insertelement":
            vector, element, index = split(rest)
            value = self._typed(vector, active).copy()
            value[:, int(index.split()[1])] = self._typed(element, active)
            return value
        if op == "shufflevector":
            a, b, mask = split(rest)
            both = np.concatenate([self._typed(a, active), self._typed(b, active)], 1)
            return both[:, self._typed(mask, active)[0].astype(int)]
        type, operands = re.match(r"(<\d+ x \w+>|\w+) (.*)", rest).groups()  # type: ignore[union-attr]
        a, b = (self._value(t, self._type(type), active) for t in split(operands))
        return arithmetic(op, a, b)

    def _vector_comparison(self, rest: str) -> tuple[str, str, str]:
        return re.match(r"(\w+) (<\d+ x \w+>) (.*)", rest).groups()  # type: ignore[union-attr,return-value]

    def _cast(self, op: str, value: np.ndarray, type: Type) -> np.ndarray:
        dtype = DTYPES[type[0]]
        if op == "bitcast":
            data = np.ascontiguousarray(value).reshape(len(value), -1).view(dtype)
            return data if type[1] > 1 else data[:, 0]
        if op == "addrspacecast":
            return value
        return (signed(value).astype(SIGNED[dtype]) if op == "sext" else value).astype(dtype)

    def _call(self, text: str, active: np.ndarray) -> Any:
        assembly = re.search(r'asm sideeffect "(.*?)", "(.*?)"\((.*)\) convergent nounwind$', text)
        if assembly:
            return self._assembly(*assembly.groups(), active)
        name, arguments = re.search(r"@(\S+?)\((.*)\)$", text).groups()  # type: ignore[union-attr]
        values = [self._typed(a, active) for a in split(arguments)] if arguments else []
        short = name.removeprefix("llvm.").removeprefix("nvvm.")
        if short in ("read.ptx.sreg.tid.x", "read.ptx.sreg.ctaid.x"):
            return (active if "tid" in short and "cta" not in short else np.full(len(active), self.block)).astype("u4")
        if short.startswith("cp.async."):
            return self._copy(short.removeprefix("cp.async."), values, active)
        if short.startswith("barrier"):
            assert len(active) == self.threads, "threads wait while others are elsewhere"
            self.epoch += 1
            return None
        if short.startswith("ldmatrix"):
            return self._matrices(values[0], ".trans" in short, active)
        if short.startswith("mma"):
            return self._multiply(short, values, active)
        if short == "f2tf32.rna":
            return (values[0].view(np.uint32) + np.uint32(1 << 12)) & np.uint32(~0x1FFF & 0xFFFFFFFF)
        found: dict[str, Callable[..., Any]] = {"smax": np.maximum, "smin": np.minimum, "maximum": np.maximum}
        if short.split(".")[0] in found:
            a, b = values
            if short[0] == "s":
                return found[short.split(".")[0]](signed(a), signed(b)).view(a.dtype)
            return found[short.split(".")[0]](a, b)
        raise AssertionError(f"what is {name}?")

    # -- tensor cores ----------------------------------------------------------------------------------------------

    def _matrices(self, addresses: np.ndarray, transposed: bool, active: np.ndarray) -> list[np.ndarray]:
        """Eight threads after each other have the addresses of the rows of a matrix of 8 x 16 bytes; each of the 32 has
        two neighbours of a row in the end, or of a column."""
        assert len(active) == self.threads
        data = self._read(addresses, 16, 16, active, by_warp=True).view(np.uint16)  # threads x 8
        results = [np.zeros(self.threads, np.uint32) for _ in range(4)]
        for warp in range(self.threads // WARP):
            for n in range(4):
                matrix = data[warp * WARP + 8 * n : warp * WARP + 8 * n + 8]
                matrix = matrix.T if transposed else matrix
                results[n][warp * WARP : (warp + 1) * WARP] = np.ascontiguousarray(matrix).view(np.uint32).reshape(-1)
        return results

    def _multiply(self, name: str, values: list[np.ndarray], active: np.ndarray) -> list[np.ndarray]:
        """By the tables of PTX: where the elements of each operand are."""
        assert len(active) == self.threads
        self.mmas += self.threads // WARP
        lane = np.arange(WARP)
        group, inside = lane // 4, lane % 4
        kind = {"bf16": ml_dtypes.bfloat16, "f32": np.float16, "tf32": np.float32}[name.rsplit(".", 1)[1]]
        each = 1 if kind is np.float32 else 2  # elements of a register
        a, b, c = values[:4], values[4:6], values[6:]
        out = [np.zeros(self.threads, np.float32) for _ in range(4)]
        for warp in range(self.threads // WARP):
            mine = slice(warp * WARP, (warp + 1) * WARP)
            left, right = np.zeros((16, 8 * each)), np.zeros((8 * each, 8))
            total = np.zeros((16, 8), np.float32)
            for n, register in enumerate(a):
                elements = np.ascontiguousarray(register[mine]).reshape(WARP, -1).view(kind).astype(np.float64)
                for e in range(each):
                    left[group + 8 * (n % 2), inside * each + e + 4 * each * (n // 2)] = elements[:, e]
            for n, register in enumerate(b):
                elements = np.ascontiguousarray(register[mine]).reshape(WARP, -1).view(kind).astype(np.float64)
                for e in range(each):
                    right[inside * each + e + 4 * each * n, group] = elements[:, e]
            for n, register in enumerate(c):
                total[group + 8 * (n // 2), inside * 2 + n % 2] = register[mine]
            total = (total + left @ right).astype(np.float32)
            for n in range(4):
                out[n][mine] = total[group + 8 * (n // 2), inside * 2 + n % 2]
        return out

    def _assembly(self, text: str, constraints: str, arguments: str, active: np.ndarray) -> Any:
        """Products of a warpgroup, of operands that were copied and then made visible to it."""
        assert len(active) == self.threads
        if text == "fence.proxy.async.shared::cta;":
            self.fenced[:] = self.epoch
            return None
        values = [self._typed(a, active) for a in split(arguments)]
        outputs = constraints.count("=f")
        pending = int(re.search(r"wgmma.wait_group.sync.aligned (\d);", text)[1])  # type: ignore[index]
        parts = []
        for first in range(0, self.threads, 4 * WARP):
            own = [value[first : first + 4 * WARP] for value in values]
            parts.append(self._products(text, own[:outputs], own[outputs:]))
        if "mma_async" in text:
            assert self.fenced.min() == self.epoch - 1, "copies are not visible"
            self.multiplying.append(np.concatenate([spans for _, spans in parts]))
        while len(self.multiplying) > pending:  # until here they were read
            spans = self.multiplying.pop(0)
            self.reader[spans], self.read_at[spans] = -2, self.epoch
        return [np.concatenate([sums[n] for sums, _ in parts]) for n in range(outputs)]

    def _products(
        self, text: str, before: list[np.ndarray], described: list[np.ndarray]
    ) -> tuple[list[np.ndarray], np.ndarray]:
        """The sums of the threads of one warpgroup, and where it reads."""
        sums, away, read = [value.copy() for value in before], [0, 0], [np.zeros(0, int)]
        assert all((value == value[0]).all() for value in described)
        lane = np.arange(4 * WARP)
        row, column = lane // WARP * 16 + lane % WARP // 4, lane % 4 * 2
        for line in text.split(";"):
            moved = re.match(r" ?add.s64 (left|right), \$(\d+), (\d+)", line)
            if moved:
                assert int(moved[2]) == 2 * len(sums) + (moved[1] == "right")
                away[moved[1] == "right"] = int(moved[3])
            product = re.match(
                r" ?wgmma.mma_async.sync.aligned.m64n(\d+)k16.f32.(\w+).\w+ \{(.*?)\}, left, right, 1, 1, 1, "
                r"(\d), (\d)",
                line,
            )
            if product:
                count, registers = int(product[1]), [int(r[1:]) for r in product[3].split(",")]
                assert registers == list(range(registers[0], registers[0] + count // 2))
                dtype = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}[product[2]]
                left, where_left = self._described(int(described[0][0]) + away[0], 64, product[4] == "1", dtype)
                right, where_right = self._described(int(described[1][0]) + away[1], count, product[5] == "1", dtype)
                read += [where_left, where_right]
                total = np.zeros((64, count), np.float32)
                where = [(row + 8 * (n // 2 % 2), column + 8 * (n // 4) + n % 2) for n in range(count // 2)]
                for register, at in zip(registers, where, strict=True):
                    total[at] = sums[register]
                total = (total + left @ right.T).astype(np.float32)
                for register, at in zip(registers, where, strict=True):
                    sums[register] = total[at]
                self.mmas += 1
        return sums, np.concatenate(read)

    def _described(self, description: int, count: int, transposed: bool, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
        """An operand by its description, as rows along K: lines of 128 bytes, whose pieces of 16 bytes are exchanged by
        bits of their addresses; eight lines, and blocks of 64 elements, are apart as it says. And where it is."""
        assert description >> 62 == 1
        begin, blocks, eights = ((description >> shift & 0x3FFF) * 16 for shift in (0, 16, 32))
        rows, k = np.arange(count)[:, None], np.arange(16)[None]
        if transposed:
            offset = rows // 64 * blocks + k // 8 * eights + k % 8 * 128 + rows % 64 * 2
        else:
            offset = rows // 8 * eights + rows % 8 * 128 + k * 2
        address = begin + offset
        address = address ^ (address >> 7 & 7) << 4
        assert (self.written[address] >= 0).all() and (self.written[address] < self.epoch).all(), (
            "read before a barrier"
        )
        spans = np.concatenate([address.reshape(-1), address.reshape(-1) + 1])
        self.reader[spans], self.read_at[spans] = -2, self.epoch
        return self.local.view(np.uint16)[address // 2].view(dtype).astype(np.float64), spans

    # -- memory ----------------------------------------------------------------------------------------------------

    def _copy(self, name: str, values: list[np.ndarray], active: np.ndarray) -> None:
        if name == "commit.group":
            for thread in active:
                self.committed[thread].append(self.open[thread])
                self.open[thread] = []
            return
        if name == "wait.group":
            for thread in active:
                pending = self.committed[thread]
                while len(pending) > int(values[0][0]):
                    for target, data in pending.pop(0):
                        self.local[target : target + len(data)] = data
                        self._mark(np.arange(target, target + len(data)), thread)
            return
        size = int(re.search(r"global\.(\d+)", name)[1])  # type: ignore[index]
        targets, sources = values[:2]
        there = values[2].astype(int) if name.endswith(".s") else np.full(len(active), size)
        assert not (targets % size).any() and not (sources % size).any(), "a copy is not aligned"
        for thread, target, source, count in zip(active, targets, sources, there, strict=True):
            data = np.zeros(size, np.uint8)
            assert 0 <= count <= size
            if count:
                data[:count] = self._bytes(int(source), int(count))
            span = np.arange(int(target), int(target) + size)
            self._check_write(span, int(thread))
            self.local[span] = POISON
            self._mark(span, int(thread))
            self.written[span] = 1 << 40  # nobody may read it until its thread has waited
            self.open[thread].append((int(target), data))

    def _bytes(self, address: int, count: int) -> np.ndarray:
        for start, memory in zip(self.starts, self.memory, strict=True):
            if start <= address and address + count <= start + len(memory):
                return memory[address - start : address - start + count]
        raise AssertionError(f"{count} bytes at {address} are outside of all buffers")

    def _read(
        self, addresses: np.ndarray, size: int, align: int, active: np.ndarray, by_warp: bool = False
    ) -> np.ndarray:
        assert not (addresses % np.uint64(align)).any(), "an address is not aligned"
        result = np.empty((len(active), size), np.uint8)
        for n, (thread, address) in enumerate(zip(active, addresses.astype(np.int64), strict=True)):
            if address >= GLOBAL:
                result[n] = self._bytes(int(address), size)
                continue
            span = slice(address, address + size)
            assert (self.written[span] >= 0).all(), "what nobody has written is read"
            now = self.written[span] >= self.epoch
            # Eight threads of a warp read what all of them get.
            alone = (self.writer[span] == thread) & (not by_warp)
            assert (~now | alone).all() and (self.written[span] < 1 << 40).all(), "read before a barrier"
            reader, before = self.reader[span], self.read_at[span]
            reader[:] = np.where((before == self.epoch) & (reader != thread), -2, thread)
            before[:] = self.epoch
            result[n] = self.local[span]
        return result

    def _write(self, addresses: np.ndarray, data: np.ndarray, align: int, active: np.ndarray) -> None:
        assert not (addresses % np.uint64(align)).any(), "an address is not aligned"
        for thread, address, row in zip(active, addresses.astype(np.int64), data, strict=True):
            if address >= GLOBAL:
                self._bytes(int(address), len(row))[:] = row
                continue
            span = np.arange(address, address + len(row))
            self._check_write(span, int(thread))
            self.local[span] = row
            self._mark(span, int(thread))

    def _check_write(self, span: np.ndarray, thread: int) -> None:
        read = (self.read_at[span] >= self.epoch) & (self.reader[span] != thread)
        wrote = (self.written[span] >= self.epoch) & (self.writer[span] != thread)
        assert not (read | wrote).any(), "written before a barrier"

    def _mark(self, span: np.ndarray, thread: int) -> None:
        self.writer[span], self.written[span] = thread, self.epoch


def split(text: str) -> list[str]:
    """What commas separate that are not in brackets."""
    return [t.strip() for t in re.split(r",\s*(?![^<({\[]*[>)}\]])", text)]


def signed(value: np.ndarray) -> np.ndarray:
    """The same bits as a signed integer."""
    return value.view(SIGNED[value.dtype.type]) if value.dtype.type in SIGNED else value


def arithmetic(op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """A binary operation of two values of one type."""
    with np.errstate(all="ignore"):
        match op:
            case "add" | "fadd":
                return a + b
            case "sub" | "fsub":
                return a - b
            case "mul" | "fmul":
                return a * b
            case "udiv":
                return a // b
            case "urem":
                return a % b
            case "sdiv" | "srem":
                quotient = np.trunc(signed(a) / signed(b)).astype(signed(a).dtype)
                return (quotient if op == "sdiv" else signed(a) - quotient * signed(b)).view(a.dtype)
            case "and":
                return a & b
            case "or":
                return a | b
            case "xor":
                return a ^ b
            case "shl":
                return a << b
            case "lshr":
                return a >> b
    raise AssertionError(f"what is {op}?")

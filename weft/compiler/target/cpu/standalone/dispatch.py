"""Choice between the x86-64 levels of a library at run time.

The level of the processor is read once by `cpuid`, which is slow, and stored in the only variable of a library: an
integer that every thread computes alike, so that threads need not wait for each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.compiler.target.cpu.standalone.unit import ENTRY_PARAMETERS, UNSUPPORTED_CPU
from weft.compiler.target.llvm import Function, Module, Parameter, Value, constant, i32, ptr, structure

# The cached level: 0 where it is not known yet, else 1 + the number of levels that the processor has.
LEVEL = "weft_x86_level"
# Bits of each level, by (leaf of cpuid, register), in the order of the levels.
_EXTENDED = 0x80000001 - (1 << 32)
_ECX, _EBX = "c", "b"
_REGISTERS = "abcd"
FEATURES: Mapping[str, Mapping[tuple[int, str], Sequence[int]]] = {
    "x86-64-v2": {(1, _ECX): (0, 9, 13, 19, 20, 23), (_EXTENDED, _ECX): (0,)},
    "x86-64-v3": {(1, _ECX): (12, 22, 27, 28, 29), (7, _EBX): (3, 5, 8), (_EXTENDED, _ECX): (5,)},
    "x86-64-v4": {(7, _EBX): (16, 17, 28, 30, 31)},
}
# Registers that the system saves, as bits of XCR0: those of AVX, and of AVX-512.
_STATES = {"x86-64-v3": 0x6, "x86-64-v4": 0xE6}
_OSXSAVE = 27


def level_symbol(name: str, level: str) -> str:
    """Return the name of a function's code for a level."""
    return f"{name}_{level.replace('-', '_')}"


def write_dispatch(module: Module, names: Sequence[str], levels: Sequence[str]) -> None:
    """Write functions of these names that call the code of the best level."""
    module.variable(LEVEL, i32, align=4)
    _write_detection(module, levels)
    for name in names:
        f = module.function(name, i32, [Parameter(p, ptr) for p in ENTRY_PARAMETERS])
        known = f.atomic_load(i32, Value(f"@{LEVEL}", ptr), "monotonic")
        with f.when(f.icmp("eq", known, constant(0, i32)), known, unlikely=True) as region:
            found = f.call("weft_x86_detect", i32)
            assert found is not None
            region.give(found)
        labels, wrong = [f.label("level") for _ in levels], f.label("wrong")
        f.switch(region.results[0], wrong, {n + 2: label for n, label in enumerate(labels)})
        for level, label in zip(levels, labels, strict=True):
            f.start(label)
            module.declare(level_symbol(name, level), i32, [ptr] * len(ENTRY_PARAMETERS))
            status = f.call(level_symbol(name, level), i32, *f.arguments)
            f.ret(status)
        f.start(wrong)
        f.ret(constant(UNSUPPORTED_CPU, i32))


def _write_detection(module: Module, levels: Sequence[str]) -> None:
    f = module.function("weft_x86_detect", i32, [], "internal")
    most = {leaf: _cpuid(f, leaf & ~0xFFFF, "a") for leaf in (1, _EXTENDED)}
    registers = {}
    for leaf, register in dict.fromkeys(key for needed in FEATURES.values() for key in needed):
        limit = most[_EXTENDED] if leaf < 0 else most[1]
        exists = f.icmp("uge", limit, constant(leaf, i32))
        registers[leaf, register] = f.select(exists, _cpuid(f, leaf, register), constant(0, i32))
    saves = f.icmp("ne", f.and_(registers[1, _ECX], constant(1 << _OSXSAVE, i32)), constant(0, i32))
    with f.when(saves, constant(0, i32)) as region:  # without it the instruction is invalid
        region.give(_read_states(f))
    (states,) = region.results
    holds, count = constant(True, f.icmp("eq", states, states).type), constant(1, i32)
    for level, needed in FEATURES.items():
        for key, bits in needed.items():
            mask = constant(sum(1 << bit for bit in bits), i32)
            holds = f.and_(holds, f.icmp("eq", f.and_(registers[key], mask), mask))
        mask = constant(_STATES.get(level, 0), i32)
        holds = f.and_(holds, f.icmp("eq", f.and_(states, mask), mask))
        if level in levels:
            count = f.add(count, f.zext(holds, i32))
    f.atomic_store(count, Value(f"@{LEVEL}", ptr), "monotonic")
    f.ret(count)


def _cpuid(f: Function, leaf: int, register: str) -> Value:
    outputs = ",".join(f"={{{name}x}}" for name in _REGISTERS)
    found = f.assembly(
        "cpuid", f"{outputs},{{ax}},{{cx}}", structure(i32, len(_REGISTERS)), constant(leaf, i32), constant(0, i32)
    )
    return f.fields(found, i32)[_REGISTERS.index(register)]


def _read_states(f: Function) -> Value:
    return f.fields(f.assembly("xgetbv", "={ax},={dx},{cx}", structure(i32, 2), constant(0, i32)), i32)[0]

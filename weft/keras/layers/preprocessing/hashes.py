"""Hashes of strings that are the same everywhere: FarmHash's 64-bit fingerprint, and SipHash-2-4 with a key.

Keras' layers hash by these, so that a model sees the same bins wherever its data is prepared.
"""

from __future__ import annotations

_MASK = (1 << 64) - 1
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F


def _rotate_right(x: int, count: int) -> int:
    return ((x >> count) | (x << (64 - count))) & _MASK


def _word(data: bytes, start: int, size: int = 8) -> int:
    return int.from_bytes(data[start : start + size], "little")


def _shift_mix(x: int) -> int:
    return x ^ (x >> 47)


def _pair(u: int, v: int, factor: int) -> int:
    """Hash two 64-bit words."""
    a = _shift_mix((u ^ v) * factor & _MASK)
    return _shift_mix((v ^ a) * factor & _MASK) * factor & _MASK


def fingerprint(data: bytes) -> int:
    """Compute FarmHash's Fingerprint64 of bytes."""
    size = len(data)
    if size > 64:
        return _long(data)
    if size > 32:
        return _medium(data, size)
    if size > 16:
        factor = _K2 + 2 * size
        a, b = _word(data, 0) * _K1 & _MASK, _word(data, 8)
        c, d = _word(data, size - 8) * factor & _MASK, _word(data, size - 16) * _K2 & _MASK
        first = _rotate_right(a + b & _MASK, 43) + _rotate_right(c, 30) + d
        return _pair(first & _MASK, a + _rotate_right(b + _K2 & _MASK, 18) + c & _MASK, factor)
    factor = _K2 + 2 * size
    if size >= 8:
        a, b = _word(data, 0) + _K2 & _MASK, _word(data, size - 8)
        c = _rotate_right(b, 37) * factor + a & _MASK
        d = (_rotate_right(a, 25) + b) * factor & _MASK
        return _pair(c, d, factor)
    if size >= 4:
        return _pair(size + (_word(data, 0, 4) << 3), _word(data, size - 4, 4), factor)
    if size:
        y, z = data[0] + (data[size >> 1] << 8), size + (data[-1] << 2)
        return _shift_mix((y * _K2 ^ z * _K0) & _MASK) * _K2 & _MASK
    return _K2


def _medium(data: bytes, size: int) -> int:
    """Hash 33 to 64 bytes."""
    factor = _K2 + 2 * size
    a, b = _word(data, 0) * _K2 & _MASK, _word(data, 8)
    c, d = _word(data, size - 8) * factor & _MASK, _word(data, size - 16) * _K2 & _MASK
    y = _rotate_right(a + b & _MASK, 43) + _rotate_right(c, 30) + d & _MASK
    z = _pair(y, a + _rotate_right(b + _K2 & _MASK, 18) + c & _MASK, factor)
    e, f = _word(data, 16) * factor & _MASK, _word(data, 24)
    g = (y + _word(data, size - 32)) * factor & _MASK
    h = (z + _word(data, size - 24)) * factor & _MASK
    first = _rotate_right(e + f & _MASK, 43) + _rotate_right(g, 30) + h & _MASK
    return _pair(first, e + _rotate_right(f + a & _MASK, 18) + g & _MASK, factor)


def _weak(data: bytes, start: int, a: int, b: int) -> tuple[int, int]:
    """Hash 32 bytes and two seeds to two words."""
    w, x, y, z = (_word(data, start + 8 * i) for i in range(4))
    a = a + w & _MASK
    b = _rotate_right(b + a + z & _MASK, 21)
    c = a
    a = a + x + y & _MASK
    return a + z & _MASK, b + _rotate_right(a, 44) + c & _MASK


def _long(data: bytes) -> int:
    """Hash more than 64 bytes."""
    size, seed = len(data), 81
    y = seed * _K1 + 113 & _MASK
    z = _shift_mix(y * _K2 + 113 & _MASK) * _K2 & _MASK
    v, w = (0, 0), (0, 0)
    x = seed * _K2 + _word(data, 0) & _MASK
    end = (size - 1) // 64 * 64

    def mix(start: int, factor: int, ninth: int) -> None:
        nonlocal x, y, z, v, w
        x = _rotate_right(x + y + v[0] + _word(data, start + 8) & _MASK, 37) * factor & _MASK
        y = _rotate_right(y + v[1] + _word(data, start + 48) & _MASK, 42) * factor & _MASK
        x ^= w[1] * ninth & _MASK
        y = y + v[0] * ninth + _word(data, start + 40) & _MASK
        z = _rotate_right(z + w[0] & _MASK, 33) * factor & _MASK
        v = _weak(data, start, v[1] * factor & _MASK, x + w[0] & _MASK)
        w = _weak(data, start + 32, z + w[1] & _MASK, y + _word(data, start + 16) & _MASK)
        x, z = z, x

    for start in range(0, end, 64):
        mix(start, _K1, 1)
    factor = _K1 + ((z & 0xFF) << 1) & _MASK
    w = (w[0] + ((size - 1) & 63) & _MASK, w[1])
    v = (v[0] + w[0] & _MASK, v[1])
    w = (w[0] + v[0] & _MASK, w[1])
    mix(size - 64, factor, 9)
    first = _pair(v[0], w[0], factor) + _shift_mix(y) * _K0 + z & _MASK
    return _pair(first, _pair(v[1], w[1], factor) + x & _MASK, factor)


def combine(first: int, second: int) -> int:
    """Combine two fingerprints into one."""
    factor = 0xC6A4A7935BD1E995
    mixed = first ^ factor ^ (_shift_mix(second * factor & _MASK) * factor & _MASK)
    return _shift_mix(_shift_mix(mixed * factor & _MASK) * factor & _MASK)


def sip_hash(data: bytes, key: tuple[int, int]) -> int:
    """Compute SipHash-2-4 of bytes with a key of two 64-bit integers."""
    low, high = (part & _MASK for part in key)
    v = [low ^ 0x736F6D6570736575, high ^ 0x646F72616E646F6D, low ^ 0x6C7967656E657261, high ^ 0x7465646279746573]

    def rounds(count: int) -> None:
        for _ in range(count):
            v[0] = v[0] + v[1] & _MASK
            v[1] = _rotate_right(v[1], 51) ^ v[0]
            v[0] = _rotate_right(v[0], 32)
            v[2] = v[2] + v[3] & _MASK
            v[3] = _rotate_right(v[3], 48) ^ v[2]
            v[0] = v[0] + v[3] & _MASK
            v[3] = _rotate_right(v[3], 43) ^ v[0]
            v[2] = v[2] + v[1] & _MASK
            v[1] = _rotate_right(v[1], 47) ^ v[2]
            v[2] = _rotate_right(v[2], 32)

    size = len(data)
    for start in range(0, size - size % 8, 8):
        word = _word(data, start)
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    last = (size & 0xFF) << 56 | _word(data, size - size % 8, size % 8)
    v[3] ^= last
    rounds(2)
    v[0] ^= last
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]

"""Halo exchange: the elements of neighbouring shards that a device needs where an operation has windows, or shifts,
along a split dimension.

Slices, pads, concatenations, windows and convolutions all read, for index o of the split dimension, one range of
elements of an operand; the range moves on by a fixed step. So the sizes alone determine which elements each device
needs, and which devices have them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from weft.base.dataclass import dataclass

Interval = tuple[int, int]  # first element, and the one after the last


@dataclass(frozen=True)
class Reach:
    """Elements that index o, of `count`, reads along a dimension of an operand with `size` elements.

    Their index times `dilation` is from `o * step - low` to `o * step - low + extent - 1`. Elements outside of the
    operand are padding.
    """

    size: int
    count: int
    step: int = 1
    low: int = 0
    extent: int = 1
    dilation: int = 1

    def read(self, first: int, last: int) -> Interval:
        """Return the interval of elements, or padding, that the indices from `first` to `last` read."""
        start = -((self.low - first * self.step) // self.dilation)
        return start, (last * self.step - self.low + self.extent - 1) // self.dilation + 1

    @property
    def pads(self) -> tuple[bool, bool]:
        """Flags: whether padding is read before the operand, and after it."""
        start, stop = self.read(0, self.count - 1)
        return start < 0, stop > self.size


class Message(NamedTuple):
    """Transfer in which each device receives elements `start` to `stop` of the shard `distance` devices after it
    (before it, if negative). `pairs` has (source, destination) for devices that need any of them."""

    distance: int
    start: int
    stop: int
    pairs: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Halo:
    """Halo exchange for a `Reach` on an operand in `parts` shards of `own` elements.

    After the exchange, device i has the elements from `i * own - before` to `i * own + after`. Of these it reads
    `width`, from `i * stride - low` on. With padding between elements, `pad_low` elements of padding come before them
    and `pad_high` after them.
    """

    reach: Reach
    parts: int
    own: int
    stride: int
    low: int
    width: int
    before: int
    after: int
    pad_low: int
    pad_high: int
    messages: tuple[Message, ...]

    @property
    def shifts(self) -> bool:
        """Whether the offset of the first element that is read, within the shard, differs between devices."""
        return self.stride != self.own

    @property
    def uneven(self) -> bool:
        """Whether the last shards end early: elements beyond the end are undefined."""
        return self.own * self.parts != self.reach.size

    @property
    def sent(self) -> int:
        """Number of elements that a device sends if every message has a receiver."""
        return sum(m.stop - m.start for m in self.messages)

    def first(self, device: int) -> int:
        """Return the first element that a device reads."""
        return device * self.stride - self.low

    @property
    def reads_padding(self) -> tuple[bool, bool]:
        """Flags: whether any device reads elements before the operand, and after it, even for results beyond the
        end.
        """
        return self.first(0) < 0, self.first(self.parts - 1) + self.width > self.reach.size


@lru_cache(maxsize=4096)
def plan_halo(reach: Reach, parts: int) -> Halo | None:
    """Plan the halo exchange for `parts` devices; return None if devices would have to run different programs."""
    own, results = -(-reach.size // parts), -(-reach.count // parts)
    stride, rest = divmod(results * reach.step, reach.dilation)
    if rest and parts > 1:
        return None  # the padding between elements starts at a different offset on each device
    low = reach.low // reach.dilation
    start, stop = reach.read(0, results - 1)
    assert start == -low
    width = stop - start
    if width < 1:
        return None  # only padding is read
    gap = (parts - 1) * (own - stride)
    before, after = low + max(0, gap), width - low + max(0, -gap)
    pad_low = reach.low - low * reach.dilation
    pad_high = (results - 1) * reach.step + reach.extent - pad_low - ((width - 1) * reach.dilation + 1)
    messages = tuple(_messages(reach, parts, own, results))
    return Halo(reach, parts, own, stride, low, width, before, after, pad_low, pad_high, messages)


def needs(reach: Reach, parts: int, device: int) -> Interval:
    """Return the interval of elements of the operand that a device needs for its shard of the results."""
    results = -(-reach.count // parts)
    first, last = device * results, min((device + 1) * results, reach.count) - 1
    if last < first:
        return 0, 0
    start, stop = reach.read(first, last)
    return max(start, 0), min(stop, reach.size)


def _messages(reach: Reach, parts: int, own: int, results: int) -> Iterator[Message]:
    found: dict[int, list[tuple[int, Interval]]] = {}
    for device in range(parts):
        start, stop = needs(reach, parts, device)
        if stop > start:
            for source in range(start // own, (stop - 1) // own + 1):
                if source != device:
                    part = source * own
                    needed = max(start - part, 0), min(stop - part, own)
                    found.setdefault(source - device, []).append((device, needed))
    for distance, wanted in sorted(found.items()):
        start, stop = min(i[0] for _, i in wanted), max(i[1] for _, i in wanted)
        yield Message(distance, start, stop, tuple((device + distance, device) for device, _ in wanted))

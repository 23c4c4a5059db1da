"""Weft's quick dataclasses are those of the standard library, in all that its compiler and its users see."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any

import pytest

from weft.base.dataclass import dataclass as quick

Decorator = Callable[..., Any]


def classes(dataclass: Decorator, **options: Any) -> list[type]:
    """Classes of all kinds of fields, made by one decorator or another."""

    @dataclass(**options)
    class Empty:
        """No field."""

    @dataclass(**options)
    class One:
        """One field."""

        x: Any

    @dataclass(**options)
    class Several:
        """Fields with values, with factories, and such that are not compared or shown."""

        x: Any
        y: Any = 2
        z: list[Any] = field(default_factory=list)
        hidden: Any = field(default=None, repr=False, compare=False)
        unhashed: Any = field(default=0, hash=False)
        named: Any = field(default=3, kw_only=True)
        counted: int = field(default=0, init=False)
        known: dict[Any, Any] = field(default_factory=dict, init=False)

    @dataclass(**options)
    class Derived(Several):
        """One more, and a value that follows from the others."""

        y: Any = 5
        more: Any = ()
        total: Any = field(init=False, compare=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", (self.x, self.y))

    @dataclass(**options)
    class Own:
        """Methods of its own."""

        x: Any

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "own"

    return [Empty, One, Several, Derived, Own]


OPTIONS = [{}, {"frozen": True}, {"eq": False}, {"frozen": True, "eq": False}, {"repr": False}]
ARGUMENTS: list[list[tuple[tuple[Any, ...], dict[str, Any]]]] = [
    [((), {})],
    [((1,), {}), ((), {"x": (2, 3)}), ((float("nan"),), {})],
    [((1,), {}), ((1, 2), {"named": 4}), ((1, 2, (3,)), {"hidden": 5}), ((1, 2, (3,)), {"hidden": 6, "unhashed": 7})],
    [((1,), {}), ((1, 2), {}), ((1, 5), {"more": 8})],
    [((1,), {}), ((2,), {})],
]


def outcome(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except (TypeError, AttributeError) as error:
        return type(error)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_objects_are_those_of_the_standard_library(options: dict[str, Any]) -> None:
    for ours, theirs, arguments in zip(
        classes(quick, **options), classes(dataclasses.dataclass, **options), ARGUMENTS, strict=True
    ):
        assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
        assert [f.name for f in dataclasses.fields(ours)] == [f.name for f in dataclasses.fields(theirs)]
        assert ours.__match_args__ == theirs.__match_args__  # type: ignore[attr-defined]
        pairs = [[cls(*args, **kwargs) for args, kwargs in arguments] for cls in (ours, theirs)]
        for a, b in zip(*pairs, strict=True):
            assert vars(a) == vars(b) or "nan" in repr(vars(a))
            if options.get("repr", True):
                assert repr(a) == repr(b)
            assert outcome(lambda a=a: hash(a)) == outcome(lambda b=b: hash(b)) or not options.get("eq", True)
            assert outcome(lambda a=a: dataclasses.asdict(a)).keys() == dataclasses.asdict(b).keys()
            assert vars(copy.deepcopy(a)).keys() == vars(b).keys()
        for i, a in enumerate(pairs[0]):
            for j, b in enumerate(pairs[0]):
                assert (a == b) is (pairs[1][i] == pairs[1][j]), (a, b)
            assert a != pairs[1][i] or type(a).__name__ == "Own"


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_attributes_of_frozen_objects_are_fixed(options: dict[str, Any]) -> None:
    for dataclass in (quick, dataclasses.dataclass):
        several = classes(dataclass, **options)[2](1)
        change = outcome(lambda several=several: setattr(several, "x", 3))
        assert change is (dataclasses.FrozenInstanceError if options.get("frozen") else None)
        assert several.x == (1 if options.get("frozen") else 3)
        assert outcome(lambda several=several: setattr(several, "new", 3)) is change
        assert outcome(lambda several=several: delattr(several, "x")) is change

        class Free(classes(dataclass, **options)[1]):  # type: ignore[misc]
            """It inherits from such a class, and has attributes of its own."""

        free = Free(4)
        free.other = 5
        assert (free.x, free.other) == (4, 5)
        assert outcome(lambda free=free: setattr(free, "x", 3)) is change


def test_replace_and_errors_of_calls() -> None:
    several = classes(quick, frozen=True)[2]
    first = several(1, named=9)
    assert dataclasses.replace(first, x=2) == several(2, named=9)
    assert first.z is not several(1).z
    for call in (lambda: several(), lambda: several(1, 2, [], None, 0, 5), lambda: several(1, counted=2)):
        with pytest.raises(TypeError, match="__init__"):
            call()


@quick(frozen=True)
class Stored:
    """Class that pickle finds."""

    x: int
    y: tuple[int, ...] = ()

    def __call__(self, argument: int) -> int:
        return self.x + argument


def test_objects_are_stored_and_can_be_called() -> None:
    assert pickle.loads(pickle.dumps(Stored(1, (2,)))) == Stored(1, (2,))
    assert list(inspect.signature(Stored(1)).parameters) == ["argument"]
    match Stored(3):
        case Stored(x, ()):
            assert x == 3
        case _:
            raise AssertionError


def test_recursive_objects_are_shown() -> None:
    @quick
    class Node:
        """Node of a graph."""

        after: Any = None

    node = Node()
    node.after = [node]
    assert repr(node).endswith("Node(after=[...])")

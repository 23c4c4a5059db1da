"""Code that is written for structures of trees does what the loops do: same leaves, same structures, same errors."""

import copy
import dataclasses
import gc
import random
import threading
import weakref
from collections import OrderedDict, defaultdict, deque, namedtuple

import pytest

import weft
from weft.base import tree, tree_def, tree_functions, tree_tokens
from weft.base.tree_code import LONG
from weft.base.tree_tokens import lasts

from .test_tree import Box, Layer, Named, Point, identity, random_tree

OFTEN = tree_functions._OFTEN + 1


def by_loops(value, is_leaf=None, path=None):
    """Leaves and structure as the loop finds them that knows nothing of written code."""
    leaves, signature, datas = [], [], []
    asked = None if is_leaf is None else lambda path, node: is_leaf(node)
    tree_def._flatten_until(value, path, leaves, signature, datas, asked)
    return leaves, tree_def.LEAF if signature[0] is tree_def._LEAF_TOKEN else tree_def._intern(signature, datas)


def warm(value, is_leaf=None):
    """Have code written for everything that is done with trees like this one."""
    for _ in range(OFTEN):
        leaves, treedef = tree.flatten(value, is_leaf)
        tree.flatten_with_path(value)
        tree.unflatten(treedef, leaves)
        treedef.flatten_up_to(value)
    return leaves, treedef


def same_objects(a, b):
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("seed", range(60))
def test_written_code_agrees_with_the_loops(seed):
    rng = random.Random(seed)
    value = random_tree(rng, 4)
    is_leaf = [lambda node: node is None, lambda node: isinstance(node, list), lambda node: False][seed % 3]
    warm(value, is_leaf)
    warm(value)
    others = [value, copy.copy(value), *[random_tree(random.Random(1000 * seed + i), 4) for i in range(10)]]
    for other in [*others, value]:
        leaves, treedef = tree.flatten(other)
        expected, structure = by_loops(other)
        assert same_objects(leaves, expected) and treedef is structure
        assert tree.unflatten(treedef, leaves) == tree.unflatten(rebuilt(treedef), leaves) == other
        assert tree.flatten_with_path(other) == by_loops(other, path=())
        assert tree.flatten(other, is_leaf) == by_loops(other, is_leaf)
        assert same_objects(treedef.flatten_up_to(other), expected)
        # Whatever is a prefix for the loops is one for the code, and has the same subtrees.
        structure = tree.structure(value)
        try:
            expected = rebuilt(structure).flatten_up_to(other)
        except ValueError as error:
            with pytest.raises(ValueError) as raised:
                structure.flatten_up_to(other)
            assert differences(raised.value) == differences(error) != []
        else:
            assert same_objects(structure.flatten_up_to(other), expected)


def differences(error):
    return [line for line in str(error).splitlines() if "at the tree" in line]


def rebuilt(treedef):
    """Return the same structure without any sharing, and without code."""
    parts = [rebuilt(child) for child in treedef.children()]
    return tree.PyTreeDef.from_node_data_and_children(tree.default_registry, treedef.node_data(), parts)


@pytest.mark.parametrize("seed", range(30))
def test_is_leaf_is_asked_once_for_each_node_in_order(seed):
    value = random_tree(random.Random(seed), 4)
    asked = []

    def is_leaf(node):
        asked.append(node)
        return isinstance(node, kinds)

    for kinds in [(), list, type(None), (list, dict), Point, ()]:  # noqa: B007
        for other in (value, random_tree(random.Random(seed + 100), 4), value):
            for _ in range(OFTEN):
                del asked[:]
                found = tree.flatten(other, is_leaf)
                mine = asked[:]
                del asked[:]
                assert found == by_loops(other, is_leaf) and same_objects(mine, asked)


def test_what_changes_is_seen():
    layer = Layer(1, {"a": 2, "b": 3})
    warm(layer)
    layer.weight = 5
    assert tree.leaves(layer) == [5, 2, 3]
    layer.name = "other"
    assert tree.structure(layer) == tree.structure(Layer(0, {"a": 0, "b": 0}, "other"))
    layer.weight = (1, 2)
    assert tree.leaves(layer) == [1, 2, 2, 3]
    layer.weight = None
    assert tree.leaves(layer) == [2, 3]
    layer.bias = {"b": 3, "a": 2}
    assert tree.leaves(layer) == [2, 3]
    layer.bias["c"] = 4
    assert tree.leaves(layer) == [2, 3, 4]
    del layer.bias
    with pytest.raises(AttributeError, match="bias"):
        tree.leaves(layer)


@pytest.mark.parametrize(
    "values",
    [
        [{1: 0}, {True: 0}, {1.0: 0}],
        [{"a": 0}, {type("Name", (str,), {})("a"): 0}],
        [Box(0, 1), Box(0, True), Box(0, 1.0), Box(0, (1,)), Box(0, (True,)), Box(0, "1"), Box(0, b"1")],
        [Box(0, 0.0), Box(0, -0.0)],
        [OrderedDict(a=0, b=1), OrderedDict(b=1, a=0)],
        [defaultdict(int, a=0), defaultdict(list, a=0), defaultdict(None, a=0)],
        [deque([0, 1]), deque([0, 1], maxlen=3)],
        [(0, 1), [0, 1], Point(0, 1)],
        [{f"k{i}": i for i in range(LONG + 5)}, {f"k{i}": i for i in reversed(range(LONG + 5))}],
        [list(range(LONG + 5)), [None, *range(LONG + 4)], [*range(LONG + 4), [1]], tuple(range(LONG + 5))],
        [Layer([*range(LONG + 1)], ()), Layer((*range(LONG + 1),), ()), Layer([*range(LONG + 2)], {})],
        [Named([1], "n"), Named([1], "m"), Named([1], identity)],
    ],
    ids=lambda values: type(values[0]).__name__,
)
def test_neighbours_are_told_apart(values):
    for value in values:
        warm(value)
    for value in values * 2:
        leaves, treedef = tree.flatten(value)
        assert (leaves, treedef) == by_loops(value) and treedef is by_loops(value)[1]
        assert repr(tree.structure(tree.unflatten(treedef, leaves))) == repr(treedef)
        assert type(tree.map(identity, value)) is type(value)
        assert tree.flatten_with_path(value) == by_loops(value, path=())


def test_keys_that_are_new_objects_are_found():
    make = lambda: {"".join(["la", "yer", str(i)]): {"".join(["ker", "nel"]): i} for i in range(3)}
    warm(make())
    (function,) = tree_functions.FLATTEN[dict][3][:1]
    assert function(make()) == by_loops(make())


def test_names_of_children_may_change():
    class Renamed:
        name = "a"

    def with_keys(node):
        return ((tree.GetAttrKey(node.name), 1), (node.name, 2)) if node.name == "c" else (
            (tree.GetAttrKey(node.name), 1),
        ), None

    tree.register_pytree_with_keys(Renamed, with_keys, lambda data, children: Renamed())
    value = Renamed()
    warm(value)
    for name in ("a", "b", "c", "a"):
        value.name = name
        assert [tree.keystr(path) for path, _ in tree.leaves_with_path(value)] == [f".{name}", "c"][: 1 + (name == "c")]


def test_exceptions_of_flatten_functions_pass():
    class Moody:
        error = None

    def flatten(node):
        if node.error is not None:
            raise node.error
        return (1, 2), None

    tree.register_pytree_node(Moody, flatten, lambda data, children: Moody())
    value = Moody()
    warm([value], lambda node: False)
    call = weft.jit(lambda value: tree.leaves(value)[0])
    for _ in range(4):
        call([value])
    for error in (ValueError("one"), TypeError("two"), KeyError("three"), ZeroDivisionError(), RecursionError("x")):
        value.error = error
        functions = [tree.flatten, tree.flatten_with_path, lambda v: tree.flatten(v, lambda node: False), call]
        for function in functions:
            with pytest.raises(type(error)) as raised:
                function([value])
            assert raised.value is error
    for error in (ValueError("one"), StopIteration()):
        with pytest.raises(type(error)) as raised:
            tree.map(lambda a, b, error=error: _raise(error), [1], [2])
        assert raised.value is error
    warm([1], _never)
    with pytest.raises(ValueError) as raised:
        tree.flatten([1], lambda node: _raise(error_of_predicate))
    assert raised.value is error_of_predicate
    with pytest.raises(TypeError, match="is_leaf must be a function"):
        tree.flatten([1], 3)


error_of_predicate = ValueError("predicate")


def _never(node):
    return False


def _raise(error):
    raise error


def test_a_leaf_that_is_registered_becomes_a_node():
    class Late:
        pass

    value = [Late(), 1]
    for is_leaf in (None, lambda node: False):
        warm(value, is_leaf)
    tree.register_pytree_node(Late, lambda node: ((7, 8), None), lambda data, children: Late())
    assert tree.leaves(value) == [7, 8, 1] == tree.leaves(value, lambda node: False)
    assert [leaf for _, leaf in tree.leaves_with_path(value)] == [7, 8, 1]


def test_nothing_of_the_users_is_retained():
    class Value:
        pass

    def function():
        return None

    leaf, static = Value(), Value()
    value = [tree.Partial(function, leaf), Box({"k": leaf}, (static, 1))]
    gc.collect()
    before = len(tree_def._INTERNED_BY_IDENTITY)
    held = warm(value, lambda node: False)[1]
    warm(value)
    assert tree.flatten(value)[1] is held is tree.flatten(value, lambda node: False)[1]
    alive = [weakref.ref(thing) for thing in (leaf, static, function)]
    del leaf, static, function, value, held
    gc.collect()
    assert [thing() for thing in alive] == [None] * 3
    assert len(tree_def._INTERNED_BY_IDENTITY) == before


def test_what_lasts():
    assert (
        lasts(identity) and lasts(Box) and lasts(object()) and lasts(weft.numpy.sin) and lasts(weft.numpy.dtype("f4"))
    )
    assert not lasts(lambda: None) and not lasts(Box(1, 2)) and not lasts([]) and not lasts({"__module__": 1})
    local = namedtuple("local", "x")
    assert not lasts(local)


def test_jit_sees_structures_by_equality():
    call = weft.jit(lambda node: tree.leaves(node))
    for _ in range(5):
        for value in (
            Layer(1.0, {"a": 2.0}),
            Layer(1.0, {"a": 2.0}, "b"),
            Layer((1.0,), {"a": 2.0}),
            [Point(1.0, 2.0)],
        ):
            assert call(value) == tree.leaves(value)
    back = weft.jit(lambda node: tree.map(lambda x: x + 1, node))
    for _ in range(5):
        for value in (Layer(1.0, {"a": 2.0}), Named([1.0], "n"), OrderedDict(b=1.0, a=2.0), defaultdict(int, a=1.0)):
            result = back(value)
            assert tree.structure(result) == tree.structure(value) and type(result) is type(value)


@dataclasses.dataclass
class Wide:
    values: object


tree.register_dataclass(Wide)


def test_threads_write_code_at_the_same_time():
    values = [random_tree(random.Random(seed), 3) for seed in range(300, 330)] + [Wide([1, 2])]
    expected = [by_loops(value) for value in values]
    failures = []

    def work():
        for _ in range(OFTEN + 3):
            for value, found in zip(values, expected, strict=True):
                if tree.flatten(value) != found or tree.flatten(value, _never) != found:
                    failures.append(value)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


class Marker:
    """Class whose module has an instance for a value that is not there."""


MISSING = Marker()


def test_structures_with_markers_of_a_module_last():
    assert lasts(MISSING) and not lasts(Marker())
    value = Box({"k": 1}, (MISSING, identity, 3))
    first = tree.structure(value)
    tokens = id(first)
    del first
    gc.collect()
    assert id(tree.structure(value)) == tokens and tree.structure(value) is tree.structure(value)
    for _ in range(tree_tokens._PATIENCE + 1):
        assert not lasts(Marker())
    assert not lasts(copy.copy(MISSING)) and lasts(MISSING)

"""Pytrees: structure, order, key paths, registration, prefixes, and errors."""

import copy
import dataclasses
import enum
import functools
import gc
import pickle
import random
import threading
import weakref
from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import NamedTuple

import pytest

import weft
from weft import tree as public_tree, tree_util
from weft.base import tree
from weft.base.tree_def import _INTERNED_BY_IDENTITY

Point = namedtuple("Point", "x y")


class Typed(NamedTuple):
    left: object
    right: object = None


class Box:
    def __init__(self, value, label):
        self.value, self.label = value, label

    def __eq__(self, other):
        return type(other) is Box and (self.value, self.label) == (other.value, other.label)


tree_util.register_pytree_node(Box, lambda box: ((box.value,), box.label), lambda label, values: Box(*values, label))


class Named(Box):
    def __eq__(self, other):
        return type(other) is Named and self.value == other.value


tree_util.register_pytree_with_keys(
    Named,
    lambda node: (((tree_util.GetAttrKey("value"), node.value),), node.label),
    lambda label, values: Named(*values, label),
)


@tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    weight: object
    bias: object
    name: str = dataclasses.field(default="layer", metadata={"static": True})


@tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Config:
    size: int


def identity(*args, **kwargs):
    return args, kwargs


SAMPLES = [
    (1, "*", []),
    (None, "None", []),
    ((), "()", []),
    ([], "[]", []),
    ({}, "{}", []),
    ((1,), "(*,)", ["[0]"]),
    ([1, (2, None)], "[*, (*, None)]", ["[0]", "[1][0]"]),
    ({"b": 1, "a": (2, 3)}, "{'a': (*, *), 'b': *}", ["['a'][0]", "['a'][1]", "['b']"]),
    ({2: 1, -1: {}}, "{-1: {}, 2: *}", ["[2]"]),
    ({(1, "x"): 1}, "{(1, 'x'): *}", ["[(1, 'x')]"]),
    (Point(1, [2]), "CustomNode(namedtuple[Point], [*, [*]])", [".x", ".y[0]"]),
    (Typed(1), "CustomNode(namedtuple[Typed], [*, None])", [".left"]),
    (OrderedDict(b=1, a=2), "CustomNode(OrderedDict[('b', 'a')], [*, *])", ["['b']", "['a']"]),
    (
        defaultdict(list, b=1, a=2),
        "CustomNode(defaultdict[(<class 'list'>, ('a', 'b'))], [*, *])",
        ["['a']", "['b']"],
    ),
    (deque([1, 2], maxlen=3), "CustomNode(deque[3], [*, *])", ["[0]", "[1]"]),
    (Box((1, 2), "b"), "CustomNode(Box[b], [(*, *)])", ["[<flat index 0>][0]", "[<flat index 0>][1]"]),
    (Named([1], "n"), "CustomNode(Named[n], [[*]])", [".value[0]"]),
    (Layer(1, {"k": 2}), "CustomNode(Layer[('layer',)], [*, {'k': *}])", [".weight", ".bias['k']"]),
    (Config(3), "CustomNode(Config[Config(size=3)], [])", []),
]
ids = [text for _, text, _ in SAMPLES]


def random_tree(rng: random.Random, depth: int) -> object:
    """Return a tree of random nodes with distinct-looking integer leaves."""
    kind = rng.randrange(14) if depth else rng.choice([0, 9])
    below = lambda: random_tree(rng, depth - 1)
    count = rng.randrange(4)
    keys = rng.sample(["a", "b", "c", "d"], count)
    match kind:
        case 1:
            return [below() for _ in range(count)]
        case 2:
            return tuple(below() for _ in range(count))
        case 3 | 4:
            return {key: below() for key in keys}
        case 5:
            return OrderedDict((key, below()) for key in keys)
        case 6:
            return defaultdict(int, {key: below() for key in keys})
        case 7:
            return Point(below(), below())
        case 8:
            return Box(below(), rng.choice([1, True, 1.0, "one", (1, 2.0), identity]))
        case 9:
            return None
        case 10:
            return Layer(below(), below(), name=rng.choice(["a", "b"]))
        case 11:
            return deque([below() for _ in range(count)])
        case 12:
            return {key: below() for key in rng.sample([0, True, 2.5, -1], count)}
        case 13:
            return Named(below(), identity)
    return rng.randrange(1000)


def rebuilt(treedef: tree.PyTreeDef) -> tree.PyTreeDef:
    """Return the same structure without any sharing."""
    parts = [rebuilt(child) for child in treedef.children()]
    return tree.PyTreeDef.from_node_data_and_children(tree.default_registry, treedef.node_data(), parts)


@pytest.mark.parametrize("value,text,paths", SAMPLES, ids=ids)
def test_samples(value, text, paths):
    leaves, treedef = tree.flatten(value)
    assert repr(treedef) == f"PyTreeDef({text})"
    assert tree.unflatten(treedef, leaves) == value
    assert type(tree.unflatten(treedef, leaves)) is type(value)
    pairs, with_path = tree.flatten_with_path(value)
    assert with_path == treedef
    assert [leaf for _, leaf in pairs] == leaves
    assert [tree.keystr(path) for path, _ in pairs] == (paths or [""] * len(leaves))
    assert treedef.num_leaves == len(leaves) == text.count("*")
    assert pickle.loads(pickle.dumps(treedef)) == treedef
    assert copy.deepcopy(treedef) == treedef


@pytest.mark.parametrize("seed", range(40))
def test_laws(seed):
    value = random_tree(random.Random(seed), 4)
    leaves, treedef = tree.flatten(value)
    assert tree.unflatten(treedef, leaves) == value
    again, same = tree.flatten(value)
    assert same is treedef and again == leaves
    assert all(type(a) is type(b) for a, b in zip(again, leaves, strict=True))
    fresh = rebuilt(treedef)
    assert fresh == treedef and hash(fresh) == hash(treedef) and repr(fresh) == repr(treedef)
    assert treedef.num_nodes == 1 + sum(child.num_nodes for child in treedef.children())
    # The other loops see the same structure and the same object for it.
    assert tree.flatten(value, is_leaf=lambda node: False) == (leaves, treedef)
    assert tree.structure(value, is_leaf=lambda node: False) is treedef
    assert tree.flatten_with_path(value)[1] is treedef
    assert treedef.flatten_up_to(value) == leaves
    assert tree.map(lambda leaf: leaf, value) == value
    assert repr(tree.structure(tree.map(lambda leaf: -leaf, value))) == repr(treedef)
    assert tree.broadcast(value, value) == value
    assert tree.broadcast_prefix(7, value) == [7] * len(leaves)
    assert tree.equality_errors(value, tree.map(str, value)) == []
    assert tree.prefix_errors(value, value) == []
    assert tree.leaves(tree.unflatten(treedef, [(leaf, leaf) for leaf in leaves])) == [
        leaf for leaf in leaves for _ in range(2)
    ]
    assert treedef.compose(tree.structure((0, 0))) == tree.structure(tree.map(lambda leaf: (leaf, leaf), value))


def test_equal_structures_are_equal_and_others_are_not():
    structures = [tree.structure(value) for value, _, _ in SAMPLES]
    for i, a in enumerate(structures):
        for j, b in enumerate(structures):
            assert (a == b) == (i == j)
            assert (a != b) == (i != j)
    assert tree.structure({"b": 1, "a": 2}) == tree.structure({"a": 3, "b": 4})
    assert tree.structure(OrderedDict(a=1, b=1)) != tree.structure(OrderedDict(b=1, a=1))
    assert tree.structure(deque([1])) != tree.structure(deque([1], maxlen=2))
    assert tree.structure(Box(1, [])) == tree.structure(Box(1, []))  # static data without a hash
    assert hash(tree.structure(Box(1, []))) == hash(tree.structure(Box(1, [])))
    assert tree.structure(1) != 1


def test_keys_that_are_equal_but_not_alike_come_back_as_they_were():
    class Color(enum.StrEnum):
        red = "red"

    for keys in ([1], [True], [1.0], ["red"], [Color.red], [(1, 2)], [(True, 2)], [0.0], [-0.0]):
        value = {key: 5 for key in keys}
        leaves, treedef = tree.flatten(value)
        back = tree.unflatten(treedef, leaves)
        assert [repr(key) for key in back] == [repr(key) for key in keys]
    assert tree.structure({1: 0}) == tree.structure({True: 0})
    for label in (1, True, 1.0, (1,), (True,)):
        back = tree.map(lambda leaf: leaf, Box(0, label))
        assert repr(back.label) == repr(label)


def test_structures_that_hold_objects_do_not_keep_them_alive():
    gc.collect()
    before = len(_INTERNED_BY_IDENTITY)

    def function():
        return None

    partial = tree.Partial(function, 1)
    treedef = tree.structure(partial)
    assert tree.structure(partial) is treedef
    assert len(_INTERNED_BY_IDENTITY) == before + 1
    alive = weakref.ref(function)
    del function, partial, treedef
    gc.collect()
    assert alive() is None
    assert len(_INTERNED_BY_IDENTITY) == before


def test_subclasses_of_containers_are_leaves():
    class MyList(list):
        pass

    class MyDict(dict):
        pass

    value = [MyList([1, 2]), MyDict(a=1)]
    assert tree.leaves(value) == value
    assert tree.structure(value) == tree.structure([0, 0])


def test_a_type_becomes_a_node_when_registered():
    class Late:
        pass

    late = Late()
    assert tree.leaves([late, late]) == [late, late]
    tree.register_pytree_node(Late, lambda node: ((1, 2), None), lambda data, children: children)
    assert tree.leaves([late, late]) == [1, 2, 1, 2]
    assert tree.is_tree_node(Late) and tree.is_tree_node(Point) and not tree.is_tree_node(int)


def test_structure_is_immutable():
    treedef = tree.structure((1, 2))
    with pytest.raises(AttributeError, match="immutable"):
        treedef.num_leaves = 3
    with pytest.raises(TypeError, match=r"weft\.tree\.structure"):
        tree.PyTreeDef()
    assert treedef.node_data() == (tuple, None)
    assert tree.structure({"a": 1}).node_data() == (dict, ["a"])
    assert tree.structure(1).node_data() is None
    assert tree.structure(None).node_data() == (type(None), None)
    assert tree.structure(Box(1, "x")).node_data() == (Box, "x")


def test_treedef_functions():
    pair, leaf = tree.structure((1, 2)), tree.structure(1)
    assert tree.treedef_tuple([leaf, pair]) == tree.structure((1, (2, 3)))
    assert tree.treedef_children(tree.treedef_tuple([leaf, pair])) == [leaf, pair]
    assert [tree.treedef_is_leaf(tree.structure(v)) for v in (1, None, (), (1,))] == [True, True, True, False]
    assert pair.compose(tree.structure([1, None])) == tree.structure(([1, None], [1, None]))
    assert tree.all_leaves([1, "a"]) and not tree.all_leaves([1, None]) and not tree.all_leaves([(1,)])
    assert tree.all_leaves([(1,)], is_leaf=lambda node: isinstance(node, tuple))
    assert tree.flatten_one_level({"b": [1], "a": 2}) == ([2, [1]], ("a", "b"))
    assert tree.flatten_one_level_with_keys(Point(1, 2)) == (
        [(tree.GetAttrKey("x"), 1), (tree.GetAttrKey("y"), 2)],
        Point,
    )
    with pytest.raises(ValueError, match="int: it is a leaf"):
        tree.flatten_one_level(3)
    assert tree.default_registry.flatten_one_level(3) is None
    assert tree.default_registry.flatten((1, None)) == tree.flatten((1, None))


def test_is_leaf():
    assert tree.leaves((1, None), is_leaf=lambda node: node is None) == [1, None]
    assert tree.structure((1, None), is_leaf=lambda node: node is None) == tree.structure((1, 2))
    value = {"a": (1, 2), "b": [3, (4,)]}
    assert tree.leaves(value, is_leaf=lambda node: isinstance(node, tuple)) == [(1, 2), 3, (4,)]
    assert tree.flatten((1, 2), is_leaf=lambda node: True) == ([(1, 2)], tree.structure(0))
    pairs = tree.leaves_with_path(value, lambda path, node: len(path) == 1, is_leaf_takes_path=True)
    assert pairs == [((tree.DictKey("a"),), (1, 2)), ((tree.DictKey("b"),), [3, (4,)])]


def test_map_and_reduce():
    assert tree.map(lambda a, b: (a, b), {"x": 1, "y": [2]}, {"x": (3, None), "y": [4]}) == {
        "x": (1, (3, None)),
        "y": [(2, 4)],
    }
    assert tree.map(lambda a, b: a, None, None) is None
    assert list(tree.map(str, {"b": 1, "a": 2})) == ["a", "b"]
    assert tree.map_with_path(lambda path, a, b: (tree.keystr(path), a, b), {"k": (1,)}, {"k": (2,)}) == {
        "k": (("['k'][0]", 1, 2),)
    }
    combine = lambda a, b: (a, b)
    assert tree.reduce(combine, [1, {"a": 2}, 3]) == ((1, 2), 3)
    assert tree.reduce(combine, [1], None) == (None, 1)
    assert tree.reduce(combine, [], None) is None
    assert tree.reduce_associative(combine, [1, 2, 3, 4, 5]) == ((1, 2), (3, (4, 5)))
    assert tree.reduce_associative(combine, [], identity=0) == 0
    for empty in (tree.reduce, tree.reduce_associative):
        with pytest.raises(TypeError, match="without leaves"):
            empty(combine, [])
    assert tree.all([1, {"a": True}]) and tree.all(()) and not tree.all([1, 0])


def test_transpose():
    outer, inner = tree.structure((0, 0)), tree.structure({"a": 0, "b": 0})
    value = ({"a": 1, "b": 2}, {"a": 3, "b": 4})
    expected = {"a": (1, 3), "b": (2, 4)}
    assert tree.transpose(outer, inner, value) == expected
    assert tree.transpose(outer, None, value) == expected
    assert tree.transpose(inner, outer, expected) == value
    with pytest.raises(TypeError, match=r"2 x 2 leaves .* got 3 "):
        tree.transpose(outer, inner, ({"a": 1, "b": 2}, 3))


def test_broadcast():
    full = ([3, 4], {"a": 5, "b": None})
    assert tree.broadcast((1, 2), full) == ([1, 1], {"a": 2, "b": None})
    assert tree.broadcast_prefix((1, {"a": 2, "b": None}), full) == [1, 1, 2]
    assert tree.broadcast_prefix((1, None), full, is_leaf=lambda node: node is None) == [1, 1, None]
    with pytest.raises(ValueError, match=r"at prefix_tree\[1\]: the prefix has None, the full tree has a dict"):
        tree.broadcast((1, None), full)


def test_flatten_axes():
    structure = tree.structure((1, {"a": (2, 3), "b": None}))
    assert tree.flatten_axes("in_axes", structure, None) == [None] * 3
    assert tree.flatten_axes("in_axes", structure, (0, None)) == [0, None, None]
    assert tree.flatten_axes("in_axes", structure, (None, {"a": (1, None), "b": 5})) == [None, 1, None]
    assert tree.flatten_axes("in_axes", tree.structure(((1, 2), {"k": 3})), ((0, None), 0), kws=True) == [0, None, 0]
    with pytest.raises(ValueError, match=r"at in_axes: the prefix has a tuple of length 3, .* a tuple of length 2"):
        tree.flatten_axes("in_axes", structure, (0, None, 1))
    with pytest.raises(ValueError, match=r"at in_axes\[1\]: the prefix has a list of length 1, .* a dict with keys"):
        tree.flatten_axes("in_axes", tree.treedef_tuple((structure, tree.structure({}))), ((0, [1]), 0), kws=True)


MISMATCHES = [
    ((1, 2), (1, 2, 3), "", "their numbers of children differ: 2 and 3"),
    ({"k": (1, 2)}, {"k": [1, 2]}, "['k']", "their types differ"),
    ({"a": 1, "b": 2}, {"b": 1, "c": 2}, "", "keys in only one of them: ['a', 'c']"),
    ([0, None], [0, 1], "[1]", "their types differ"),
    (Layer(0, Box(1, "p")), Layer(0, Box(1, "q")), ".bias", "their static data differ"),
    (Named((1, 2), "n"), Named(3, "n"), ".value", "their types differ"),
    (OrderedDict(a=1, b=1), OrderedDict(b=1, a=1), "", "their static data differ"),
]


@pytest.mark.parametrize("a,b,path,why", MISMATCHES, ids=[f"{why} {path}" for _, _, path, why in MISMATCHES])
def test_mismatches_name_the_path(a, b, path, why):
    (difference,) = tree.equality_errors(a, b)
    assert tree.keystr(difference.path) == path
    assert difference.why == why
    assert difference.first != difference.second
    (line,) = tree.prefix_errors(a, b, name="in_axes")
    assert line.startswith(f"at in_axes{path}: the prefix has {difference.first}, the full tree has")
    with pytest.raises(ValueError) as raised:
        tree.map(lambda *_: None, a, a, b)
    assert f"at tree 3{path}: expected {difference.first}, got {difference.second} ({why})" in str(raised.value)
    (of_structures,) = tree.equality_errors_of_structures(tree.structure(a), tree.structure(b))
    assert of_structures.why == why


def test_all_differences_are_listed():
    found = tree.equality_errors({"a": (1,), "b": [1], "c": 0}, {"a": [1], "b": [1], "c": ()})
    assert [(tree.keystr(d.path), d.first, d.second) for d in found] == [
        ("['a']", "a tuple of length 1", "a list of length 1"),
        ("['c']", "a leaf of type int", "a tuple of length 0"),
    ]
    assert tree.prefix_errors(1, (2, 3)) == []


def test_errors_of_flatten_and_unflatten():
    with pytest.raises(ValueError, match=r"keys of a dict .* sortable.* int, str .*OrderedDict"):
        tree.flatten({1: 1, "a": 2})
    with pytest.raises(ValueError, match="keys of a defaultdict"):
        tree.flatten(defaultdict(int, {1: 1, "a": 2}))
    with pytest.raises(ValueError, match=r"expected 2 leaves .*\(\*, \*\).*got 3"):
        tree.unflatten(tree.structure((1, 2)), [1, 2, 3])
    assert tree.unflatten(tree.structure((1, 2)), iter([1, 2])) == (1, 2)


@pytest.mark.parametrize("result", [3, (1, 2, 3), [(1,), 2], (None, 2), (3, 2)], ids=repr)
def test_flatten_functions_are_checked(result):
    class Wrong:
        pass

    tree.register_pytree_node(Wrong, lambda node: result, lambda data, children: None)
    with pytest.raises(ValueError, match="the flatten function of Wrong must return"):
        tree.flatten(Wrong())


def test_registration_happens_once():
    for attempt in (
        lambda: tree.register_pytree_node(Box, None, None),
        lambda: tree.register_pytree_node(list, None, None),
        lambda: tree.register_static(Config),
        lambda: tree.register_dataclass(Layer),
    ):
        with pytest.raises(ValueError, match="already registered"):
            attempt()
    with pytest.raises(TypeError, match="needs a type"):
        tree.register_pytree_node(3, None, None)


def test_register_classes():
    @tree_util.register_pytree_node_class
    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

        def tree_flatten(self):
            return (self.a, self.b), "aux"

        @classmethod
        def tree_unflatten(cls, aux, children):
            assert aux == "aux" and type(children) is tuple
            return cls(*children)

    @tree_util.register_pytree_with_keys_class
    class Keyed(Pair):
        def tree_flatten_with_keys(self):
            return ((tree.GetAttrKey("a"), self.a), (tree.DictKey("b"), self.b)), "aux"

    for cls, paths in ((Pair, ["[<flat index 0>]", "[<flat index 1>]"]), (Keyed, [".a", "['b']"])):
        back = tree.map(lambda leaf: leaf + 1, cls(1, 2))
        assert (type(back), back.a, back.b) == (cls, 2, 3)
        assert [tree.keystr(path) for path, _ in tree.leaves_with_path(cls(1, 2))] == paths


def make_dataclass(**options):
    @dataclasses.dataclass
    class Record:
        a: int
        b: int = dataclasses.field(default=2, **options)

    return Record


def test_register_dataclass():
    record = tree.register_dataclass(make_dataclass(), ["a"], ["b"])
    assert tree.flatten(record(1, 5))[0] == [1]
    assert tree.map(str, record(1, 5)) == record("1", 5)
    dropped = tree.register_dataclass(make_dataclass(), ["a"], [], drop_fields=["b"])
    assert tree.map(str, dropped(1, 5)) == dropped("1", 2)
    derived = tree.register_dataclass(make_dataclass(init=False), ["a"], [])
    assert tree.leaves(derived(7)) == [7]
    bound = functools.partial(tree.register_dataclass, data_fields=["b"], meta_fields=["a"])(make_dataclass())
    assert [tree.keystr(path) for path, _ in tree.leaves_with_path(bound(1))] == [".b"]
    field = public_tree.static(default=3, metadata={"note": 1})
    assert dict(field.metadata) == {"note": 1, "static": True} and field.default == 3


@pytest.mark.parametrize(
    "arguments,error,message",
    [
        ((["a"],), TypeError, "together or neither"),
        ((["a"], []), ValueError, r"missing: \['b'\]"),
        ((["a", "c"], ["b"]), ValueError, r"not taken: \['c'\]"),
        ((["a", "b"], ["b"]), ValueError, r"both have \['b'\]"),
    ],
)
def test_register_dataclass_checks_fields(arguments, error, message):
    with pytest.raises(error, match=message):
        tree.register_dataclass(make_dataclass(), *arguments)


def test_register_dataclass_needs_fields_of_other_classes():
    class Plain:
        def __init__(self, a, b):
            self.a, self.b = a, b

    with pytest.raises(TypeError, match="not a dataclass"):
        tree.register_dataclass(Plain)
    tree.register_dataclass(Plain, ["a"], ["b"])
    assert tree.map(str, Plain(1, 2)).a == "1"


def test_partial():
    partial = tree.Partial(identity, 1, k=[2])
    assert tree.leaves(partial) == [1, 2]
    assert tree.map(str, partial)(5) == (("1", 5), {"k": ["2"]})
    nested = tree.Partial(partial, 3, j=4)
    assert nested() == ((1, 3), {"k": [2], "j": 4})
    assert tree.leaves(nested) == [3, 4]  # the inner partial is static, as it was given
    assert tree.structure(nested) == tree.structure(tree.Partial(partial, 0, j=0))
    assert tree.structure(partial) == tree.structure(tree.Partial(identity, 5, k=[6]))
    assert tree.structure(partial) != tree.structure(tree.Partial(len, 5, k=[6]))
    assert pickle.loads(pickle.dumps(nested))() == nested()
    with pytest.raises(TypeError, match="callable"):
        tree.Partial(3)


def test_key_entries():
    keys = (tree.SequenceKey(1), tree.DictKey("a"), tree.DictKey(3), tree.GetAttrKey("b"), tree.FlattenedIndexKey(2))
    assert tree.keystr(keys) == "[1]['a'][3].b[<flat index 2>]"
    assert tree.keystr(keys, simple=True, separator="/") == "1/a/3/b/2"
    assert tree.keystr((), simple=True) == "" and tree.keystr(("x", 1), separator=".") == "x.1"
    assert repr(keys[0]) == "SequenceKey(idx=1)" and repr(keys[3]) == "GetAttrKey(name='b')"
    assert len(set(keys)) == 5 and tree.DictKey("a") == keys[1] and tree.DictKey("b") != keys[1]
    assert tree.SequenceKey(1) != tree.FlattenedIndexKey(1)


def test_threads_agree():
    values = [random_tree(random.Random(seed), 4) for seed in range(100, 120)]
    expected = [tree.flatten(value) for value in values]
    failures = []

    def work():
        for _ in range(5):
            for value, (leaves, treedef) in zip(values, expected, strict=True):
                found = tree.flatten(value)
                if found != (leaves, treedef) or tree.unflatten(found[1], leaves) != value:
                    failures.append(value)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_public_names():
    for module in (public_tree, tree_util):
        assert all(
            callable(getattr(module, name)) for name in module.__all__ if name[:3] != "Key" and "reg" not in name
        )
    assert tree_util.tree_map is public_tree.map


@pytest.mark.parametrize("depth", [600, 4000])
def test_trees_deeper_than_the_stack(depth: int) -> None:
    deep = 1.0
    for level in range(depth):
        deep = (deep,) if level % 2 else {"a": [deep, None]}
    leaves, structure = weft.tree.flatten(deep)
    assert leaves == [1.0] and weft.tree.unflatten(structure, [2.0]) is not None
    assert structure == weft.tree.structure(deep, is_leaf=lambda x: False) and str(structure).count("*") == 1
    assert structure.compose(weft.tree.structure((1, 2))).num_leaves == 2
    assert len(weft.tree_util.tree_flatten_with_path(deep)[0][0][0]) == sum(2 - level % 2 for level in range(depth))
    assert weft.tree.leaves(weft.tree.map(lambda x, y: x + y, deep, deep)) == [2.0]
    double = weft.jit(lambda t: weft.tree.map(lambda x: x * 2, t))
    for _ in range(4):
        assert weft.tree.leaves(double(deep)) == [2.0]
    assert weft.tree.leaves(weft.grad(lambda t: weft.tree.leaves(t)[0] * 3)(deep)) == [3.0]

"""Instruction fusion: each equation goes into those that read it, from the last to the first.

An equation that costs nothing to compute again goes wherever it is read; a cheap one into several fusions if those
read and write no more bytes; any other into the one fusion that reads it. None goes through an expensive operation, and
a value that costs something is not computed several times because its reader repeats it.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.compiler.fuse.cost import Reason, bytes_of
from weft.compiler.fuse.graph import (
    IN_PLACE_KINDS,
    POINTWISE_KINDS,
    Graph,
    Group,
    Node,
    code_at_further_sites,
    in_memory,
    set_hero,
    sites_of,
    usage,
    users_in,
)
from weft.compiler.target.costs import FusionLimits
from weft.ir.fusing import EXPAND, HERO, INDEX_VECTOR, LOOKUP, MOVE, POINTWISE
from weft.ir.jaxpr import Var

RULE = "instruction"
# Heroes whose results can be worked on, element by element, before they are stored.
EPILOGUE_KINDS = frozenset(
    (
        "row",
        "all",
        "column",
        "transpose",
        "concatenate",
        "cumulative",
        "contraction",
        "convolution",
        "window",
    )
)
# More than this many evaluations for each element is computing again.
ONCE = 1.001


def fuse_instructions(graph: Graph) -> None:
    """Put every equation that can be fused into a group; those that row-wise fusion took have theirs."""
    for node in reversed(graph.nodes):
        if not node.unfused and not node.groups:
            fuse_node(graph, node)


def fuse_node(graph: Graph, node: Node) -> None:
    """Put an equation into the fusions that read it, or into a new one."""
    readers: dict[Group, None] = {}
    needed = node.is_output
    for user in node.users:
        if user.unfused:
            needed = True
        else:
            readers.update(dict.fromkeys(user.groups))
    if not readers:
        graph.lead(node)
        return
    if node.role == EXPAND:
        _fuse_expansion(graph, node, list(readers), needed)
    elif needed:
        _refuse(graph, node, readers, "is a result or read by a bare equation")
    elif len(readers) == 1:
        (reader,) = readers
        refusal = obstacle(graph, reader, node)
        if refusal is None:
            take(graph, reader, node, owner=True)
        else:
            graph.note(None, Reason(RULE, node.label, reader.label, False, refusal))
            graph.lead(node)
    else:
        _duplicate(graph, node, list(readers))


def _fuse_expansion(graph: Graph, node: Node, readers: list[Group], needed: bool) -> None:
    """Put a broadcast into all fusions that read it: a repeated smaller value is never worth memory."""
    for reader in readers:
        refusal = obstacle(graph, reader, node)
        if refusal is None:
            take(graph, reader, node, owner=False)
        else:
            needed = True
            graph.note(None, Reason(RULE, node.label, reader.label, False, refusal))
    if needed:
        graph.lead(node)
    elif len(readers) == 1:
        node.owner = readers[0]


def _duplicate(graph: Graph, node: Node, readers: list[Group]) -> None:
    """Put an equation into several fusions, if it is cheap and they read and write no more bytes."""
    limit = graph.limits.copies
    if not node.cheap or len(readers) > limit:
        why = f"has more than {limit} readers" if node.cheap else "is expensive"
        if node.role == HERO:
            why = "needs no kernel" if node.properties.kind == "alias" else "is a hero, made once"
        _refuse(graph, node, readers, why)
        return
    for reader in readers:
        refusal = obstacle(graph, reader, node)
        if refusal is not None:
            graph.note(None, Reason(RULE, node.label, reader.label, False, refusal))
            graph.lead(node)
            return
    before, after = bytes_apart(node, readers), bytes_inside(node, readers)
    if after > before:
        details = (("copies", len(readers)), ("bytes apart", before), ("bytes inside", after))
        graph.note(None, Reason(RULE, node.label, f"{len(readers)} fusions", False, details))
        graph.lead(node)
        return
    for reader in readers:
        take(graph, reader, node, owner=False, details=(("copies", len(readers)), ("bytes", after - before)))


def bytes_apart(node: Node, readers: list[Group]) -> int:
    """Bytes read and written when the value is computed once, stored, and read by each fusion."""
    return sum(bytes_of(v.aval) for v in node.operands) + node.bytes * (1 + len(readers))


def bytes_inside(node: Node, readers: list[Group]) -> int:
    """Bytes read when each fusion computes the value: the operands that it does not read anyway."""
    return sum(bytes_of(v.aval) for reader in readers for v in node.operands if v not in reader.operands)


def _refuse(graph: Graph, node: Node, readers: dict[Group, None] | list[Group], why: str) -> None:
    first = next(iter(readers))
    name = first.label if len(readers) == 1 else f"{len(readers)} fusions"
    graph.note(None, Reason(RULE, node.label, name, False, (("it", why),)))
    graph.lead(node)


def take(
    graph: Graph, group: Group, node: Node, *, owner: bool, details: tuple[tuple[str, object], ...] | None = None
) -> None:
    """Put a node into a group that has no objection, as its owner or as a copy."""
    evaluations, direct = usage(group, node)
    if details is None:
        details = (("saves", 2 * node.bytes),)
    graph.note(group, Reason(RULE, node.label, group.label, True, details))
    if node.role == HERO and group.kind in POINTWISE_KINDS:
        set_hero(group, node)
    group.add(node, evaluations, direct)
    if owner:
        node.owner = group


def obstacle(graph: Graph, group: Group, node: Node) -> tuple[tuple[str, object], ...] | None:
    """Why the node cannot go into a group that reads it, or None."""
    limits = graph.limits
    if len(group.members) >= limits.values:
        return (("values", len(group.members)), ("limit", limits.values))
    reader = reader_from_memory(group, node)
    if reader is not None:
        return (("closed", f"{reader} reads it from memory"),)
    if overwrites(group, node.operands):
        return (("in place", "it would read what the hero overwrites"),)
    if len(group.operands) + len(node.operands) > limits.operands:
        reads = len({*group.operands, *node.operands}.difference(node.equation.outvars))
        if reads > limits.operands:
            return (("operands", reads), ("limit", limits.operands))
    if node.properties is INDEX_VECTOR and not all(_takes_index(user, node) for user in users_in(group, node)):
        return (("index", "only lookups take its components one by one"),)
    sites = len(sites_of(group, node))
    if sites > limits.sites * (4 if node.role in (EXPAND, MOVE) else 1):
        return (("sites", sites), ("limit", limits.sites))
    repeated = code_at_further_sites(node, sites)
    if repeated and node.role != EXPAND and group.repeated + repeated > limits.repeated:
        return (("repeated code", group.repeated + repeated), ("limit", limits.repeated))
    evaluations, direct = usage(group, node)
    if node.role == HERO:
        return _hero_obstacle(group, node, direct)
    reuse = evaluations / max(node.size, 1)
    if reuse > ONCE and node.role != EXPAND:
        if node.role == LOOKUP or not node.cheap:
            return (("evaluations of each element", reuse), ("weight", node.weight))
        hero = group.hero
        prologue = hero is not None and hero.properties.repeats is not None
        # Where a contraction reads its operand is for its emitter to say; what it reads there it would compute again.
        if prologue and reuse > limits.prologue_repeats and not (node.role == MOVE and node.properties.affine):
            return (("evaluations of each element", reuse), ("limit", limits.prologue_repeats))
    return None


def reader_from_memory(group: Group, node: Node) -> str | None:
    """The reader in the group that needs the value in memory, if there is one."""
    results = set(node.equation.outvars)
    return next((user.label for user in users_in(group, node) if not results.isdisjoint(in_memory(user))), None)


def _takes_index(user: Node, node: Node) -> bool:
    """Whether an equation is a gather or a scatter, and the node is nothing but its index."""
    results = node.equation.outvars
    found = [i for i, a in enumerate(user.equation.invars) if type(a) is Var and a in results]
    return found == [user.equation.primitive.index_operand]


def overwrites(group: Group, operands: Sequence[Var]) -> bool:
    """Whether one of the operands is the one that the group writes in place.

    Such a value must be read before the kernel starts: otherwise the whole operand would be copied.
    """
    return group.kind in IN_PLACE_KINDS and group.hero is not None and group.hero.equation.invars[0] in operands


def _hero_obstacle(group: Group, node: Node, direct: bool) -> tuple[tuple[str, object], ...] | None:
    kind = node.properties.kind
    if kind == "alias":
        return (("alias", "it needs no kernel"),)
    if kind not in EPILOGUE_KINDS:
        return (("kind", f"nothing follows a {kind} in its kernel"),)
    if len(node.equation.outvars) != 1:
        return (("results", len(node.equation.outvars)),)
    if group.hero is not None:
        same = kind == "transpose" == group.kind and node.equation.params == group.hero.equation.params
        if not (same and node.shape == group.hero.shape and direct):
            return (("hero", f"{group.hero.label} owns the loops"),)
        return None
    if group.kind not in POINTWISE_KINDS:
        return (("hero", f"{group.kind} owns the loops"),)
    if not direct or node.space != group.out:
        return (("index", "it is read at another index than the loops'"),)
    return None


def is_cheap_chain(nodes: list[Node], limits: FusionLimits) -> bool:
    """Whether a whole group can be computed again: no hero, no lookup, and little work for an element."""
    weight = sum(n.weight for n in nodes)
    return weight <= 4 * limits.cheap_weight and all(n.role in (POINTWISE, EXPAND, MOVE) and n.cheap for n in nodes)

"""Instruction fusion: puts each equation into the fusions that read it, from the last equation to the first.

An equation that costs nothing to recompute goes into all of its readers; a cheap one into several if these read and
write no more bytes; any other into its only reader. An expensive value is never recomputed, neither in several readers
nor because a reader repeats it.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.compiler.fuse.cost import Details, FusionReason, count_bytes
from weft.compiler.fuse.graph import (
    IN_PLACE_KINDS,
    POINTWISE_KINDS,
    FusionGraph,
    FusionGroup,
    FusionNode,
    code_at_further_sites,
    find_sites,
    in_memory,
    set_hero,
    usage,
    users_in,
)
from weft.compiler.target.costs import FusionLimits
from weft.ir.fusing import EXPAND, HERO, INDEX_VECTOR, LOOKUP, MOVE, POINTWISE
from weft.ir.jaxpr import Var

RULE = "instruction"
# Heroes that an epilogue may follow: elementwise operations on their results before these are stored.
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
# More evaluations of each element than this mean recomputation.
ONCE = 1.001


def fuse_instructions(graph: FusionGraph) -> None:
    """Put every equation that can be fused into a group, unless row-wise fusion did."""
    for node in reversed(graph.nodes):
        if not node.unfused and not node.groups:
            fuse_node(graph, node)


def fuse_node(graph: FusionGraph, node: FusionNode) -> None:
    """Put an equation into the fusions that read it, or into a new one."""
    readers: dict[FusionGroup, None] = {}
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
            graph.note(None, FusionReason(RULE, node.label, reader.label, False, refusal))
            graph.lead(node)
    else:
        _duplicate(graph, node, list(readers))


def _fuse_expansion(graph: FusionGraph, node: FusionNode, readers: list[FusionGroup], needed: bool) -> None:
    """Put a broadcast into all fusions that read it: a repeated smaller value is never worth memory."""
    for reader in readers:
        refusal = obstacle(graph, reader, node)
        if refusal is None:
            take(graph, reader, node, owner=False)
        else:
            needed = True
            graph.note(None, FusionReason(RULE, node.label, reader.label, False, refusal))
    if needed:
        graph.lead(node)
    elif len(readers) == 1:
        node.owner = readers[0]


def _duplicate(graph: FusionGraph, node: FusionNode, readers: list[FusionGroup]) -> None:
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
            graph.note(None, FusionReason(RULE, node.label, reader.label, False, refusal))
            graph.lead(node)
            return
    before, after = bytes_apart(node, readers), bytes_inside(node, readers)
    if after > before:
        details = (("copies", len(readers)), ("bytes apart", before), ("bytes inside", after))
        graph.note(None, FusionReason(RULE, node.label, f"{len(readers)} fusions", False, details))
        graph.lead(node)
        return
    for reader in readers:
        take(graph, reader, node, owner=False, details=(("copies", len(readers)), ("bytes", after - before)))


def bytes_apart(node: FusionNode, readers: list[FusionGroup]) -> int:
    """Return the bytes read and written if a value is computed once, stored, and read by each fusion."""
    return sum(count_bytes(v.aval) for v in node.operands) + node.bytes * (1 + len(readers))


def bytes_inside(node: FusionNode, readers: list[FusionGroup]) -> int:
    """Return the bytes read if each fusion computes a value: of the operands that it does not read anyway."""
    return sum(count_bytes(v.aval) for reader in readers for v in node.operands if v not in reader.operands)


def _refuse(
    graph: FusionGraph, node: FusionNode, readers: dict[FusionGroup, None] | list[FusionGroup], why: str
) -> None:
    """Record why a node goes into none of its readers, and start a group with it."""
    first = next(iter(readers))
    name = first.label if len(readers) == 1 else f"{len(readers)} fusions"
    graph.note(None, FusionReason(RULE, node.label, name, False, (("it", why),)))
    graph.lead(node)


def take(
    graph: FusionGraph,
    group: FusionGroup,
    node: FusionNode,
    *,
    owner: bool,
    details: Details | None = None,
) -> None:
    """Put a node into a group for which there is no obstacle, as its owner or as a copy."""
    evaluations, direct = usage(group, node)
    if details is None:
        details = (("saves", 2 * node.bytes),)
    graph.note(group, FusionReason(RULE, node.label, group.label, True, details))
    if node.role == HERO and group.kind in POINTWISE_KINDS:
        set_hero(group, node)
    group.add(node, evaluations, direct)
    if owner:
        node.owner = group


def obstacle(graph: FusionGraph, group: FusionGroup, node: FusionNode) -> Details | None:
    """Return the reason why a node cannot go into a group that reads it, or None."""
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
    sites = len(find_sites(group, node))
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
        # The emitter of a contraction chooses where it reads an operand; any operation on that would be repeated.
        if prologue and reuse > limits.prologue_repeats and not (node.role == MOVE and node.properties.affine):
            return (("evaluations of each element", reuse), ("limit", limits.prologue_repeats))
    return None


def reader_from_memory(group: FusionGroup, node: FusionNode) -> str | None:
    """Return the label of a member that needs the value in memory, or None."""
    results = set(node.equation.outvars)
    return next((user.label for user in users_in(group, node) if not results.isdisjoint(in_memory(user))), None)


def _takes_index(user: FusionNode, node: FusionNode) -> bool:
    """Return whether an equation is a gather or a scatter that reads the node as its index only."""
    results = node.equation.outvars
    found = [i for i, a in enumerate(user.equation.invars) if type(a) is Var and a in results]
    return found == [user.equation.primitive.index_operand]


def overwrites(group: FusionGroup, operands: Sequence[Var]) -> bool:
    """Return whether one of the operands is the one that the group writes in place.

    It must be read before the kernel starts: otherwise the whole operand would be copied.
    """
    return group.kind in IN_PLACE_KINDS and group.hero is not None and group.hero.equation.invars[0] in operands


def _hero_obstacle(group: FusionGroup, node: FusionNode, direct: bool) -> Details | None:
    """Return the reason why a hero cannot go into a group that reads it, or None."""
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


def is_cheap_chain(nodes: list[FusionNode], limits: FusionLimits) -> bool:
    """Return whether a whole group can be recomputed: no hero, no lookup, and little work per element."""
    weight = sum(n.weight for n in nodes)
    return weight <= 4 * limits.cheap_weight and all(n.role in (POINTWISE, EXPAND, MOVE) and n.cheap for n in nodes)

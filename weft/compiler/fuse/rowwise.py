"""Row-wise fusion: reductions over trailing dimensions and the operations that follow, as one kernel over rows.

A row space is (outer, reduced): its *full* values have a row of elements for each outer index, its *row* values one.
From each reduction the pass goes forward through equations that stay in the space: pointwise ones at either level,
further reductions of full values, and broadcasts of row values back to full ones. So softmax, layer norm, logsumexp and
their gradients become one fusion each; their producers are added by instruction fusion afterwards.

A cluster never reads a value that depends on itself through an equation outside, so no cycle can arise.
"""

from __future__ import annotations

from weft.compiler.fuse.classify import leading
from weft.compiler.fuse.cost import FusionReason
from weft.compiler.fuse.graph import REDUCTIONS, FusionGraph, FusionGroup, FusionNode
from weft.ir.fusing import EXPAND, HERO, MOVE, POINTWISE, Space, element_count
from weft.ir.jaxpr import Var
from weft.primitives.families import Reduction

RULE = "row"
TAIL_ROLES = frozenset({POINTWISE, EXPAND, MOVE})


class Cluster:
    """Equations of one row space. `mask` has the bits of all clusters that were merged into it."""

    __slots__ = (
        "dependencies",
        "dependents",
        "full",
        "mask",
        "members",
        "out",
        "outside",
        "reasons",
        "reduced",
        "wide",
    )

    def __init__(self, bit: int, full: Space, reduced: tuple[int, ...], wide: bool):
        self.full, self.reduced = full, reduced
        self.out = full[: len(full) - len(reduced)]
        self.wide = wide  # whether a row stays in cache, so that full values may follow the reduction
        self.mask = bit
        self.dependencies = 0
        self.dependents = 0
        self.members: dict[int, FusionNode] = {}
        self.outside: set[Var] = set()  # the values that it reads
        self.reasons: list[FusionReason] = []


class RowClusters:
    """The pass over the equations in order, with the clusters found so far."""

    def __init__(self, graph: FusionGraph):
        self.graph = graph
        self.cluster_of: dict[int, Cluster] = {}  # by member
        self.bits: dict[int, int] = {}  # by other node: the clusters on which it depends
        self.effects = 0  # the clusters on which effects depend
        self.clusters: list[Cluster] = []
        self.count = 0

    def visit(self, node: FusionNode) -> None:
        """Put one equation into a cluster, or note on which clusters it depends."""
        near: dict[Cluster, None] = {}
        outside = 0
        for producer in node.producers:
            if producer is None:
                continue
            cluster = self.cluster_of.get(producer.index)
            if cluster is None:
                outside |= self.bits[producer.index]
            else:
                near[cluster] = None
        if near or node.role == HERO:
            found = self.choose(node, near, outside)
            if found is not None:
                self.cluster_of[node.index] = found
                return
        for cluster in near:
            outside |= cluster.mask
        if node.equation.effects:  # it comes after all effects before it, and so after what they depend on
            outside = self.effects = outside | self.effects
        self.bits[node.index] = outside

    def choose(self, node: FusionNode, near: dict[Cluster, None], outside: int) -> Cluster | None:
        """Return the cluster that an equation goes into, or None; a reduction that fits none starts one."""
        chosen: Cluster | None = None
        fitting = [c for c in near if fits(node, c)]
        while fitting and chosen is None:
            cluster = fitting.pop()
            for other in fitting:
                # The node reads two clusters: they become one kernel if neither depends on the other.
                if not outside & (other.mask | other.dependents):
                    self.unite(cluster, other)
            fitting = [c for c in fitting if c.members]
            others = outside
            for other in near:
                if other is not cluster and other.members:
                    others |= other.mask
            if self.admits(cluster, node, others):
                chosen = cluster
                self.depend(cluster, others)
        if chosen is None and is_row_reduction(node):
            chosen = self.start(node)
            for other in near:
                outside |= other.mask
            self.depend(chosen, outside)
        if chosen is not None:
            chosen.members[node.index] = node
            chosen.outside.update(v for v in node.operands if not self._inside(v, chosen))
        return chosen

    def start(self, node: FusionNode) -> Cluster:
        """Start a cluster with a reduction."""
        full, reduced = node.properties.full, node.properties.reduced
        assert full is not None and reduced is not None
        limits = self.graph.limits
        row = element_count(full[len(full) - len(reduced) :]) * (node.bytes // max(node.size, 1))
        limit = limits.row_bytes if len(reduced) < len(full) else limits.single_row_bytes
        cluster = Cluster(1 << self.count, full, reduced, row <= limit)
        if row > limit:
            self.graph.note(
                None, FusionReason(RULE, node.label, "what follows", False, (("row bytes", row), ("limit", limit)))
            )
        self.count += 1
        self.clusters.append(cluster)
        return cluster

    def admits(self, cluster: Cluster, node: FusionNode, others: int) -> bool:
        """Return whether a cluster can take a node: no operand from elsewhere depends on the cluster."""
        limits = self.graph.limits
        if others & (cluster.mask | cluster.dependents):
            return False
        if len(cluster.members) >= limits.values:
            details = (("values", len(cluster.members)), ("limit", limits.values))
            self.graph.note(None, FusionReason(RULE, node.label, "row", False, details))
            return False
        if len(cluster.outside) + len(node.operands) <= limits.operands:
            return True
        read = {v for v in node.operands if not self._inside(v, cluster)}
        return len(cluster.outside | read) <= limits.operands

    def _inside(self, v: Var, cluster: Cluster) -> bool:
        producer = self.graph.node_of.get(v)
        return producer is not None and producer.index in cluster.members

    def depend(self, cluster: Cluster, bits: int) -> None:
        """Record that a cluster depends on the clusters in `bits`, and the dependencies that follow from it."""
        new = bits & ~cluster.mask & ~cluster.dependencies
        if not new:
            return
        gained = new
        for other in self.clusters:
            if other.dependents & new:
                gained |= other.mask
        below = cluster.mask | cluster.dependents
        for other in self.clusters:
            if other.mask & gained:
                other.dependents |= below
            if other.mask & below:
                other.dependencies |= gained

    def unite(self, first: Cluster, second: Cluster) -> bool:
        """Merge two clusters of one space that do not depend on each other, and return whether that was possible."""
        if (first.full, first.reduced) != (second.full, second.reduced):
            return False
        if (first.dependents & second.mask) or (second.dependents & first.mask):
            return False
        limits = self.graph.limits
        if len(first.members) + len(second.members) > limits.values:
            return False
        if len(first.outside | second.outside) > limits.operands:
            return False
        for index in second.members:
            self.cluster_of[index] = first
        first.members.update(second.members)
        first.outside |= second.outside
        first.reasons += second.reasons
        first.mask |= second.mask
        first.wide = first.wide and second.wide
        second.members = {}
        first.reasons.append(FusionReason(RULE, "a cluster", "a cluster", True, (("values", len(first.members)),)))
        dependencies, dependents = second.dependencies, second.dependents
        self.clusters.remove(second)
        first.dependents |= dependents
        self.depend(first, dependencies)
        for other in self.clusters:
            if other.mask & first.dependencies:
                other.dependents |= first.mask | first.dependents
            if other.mask & first.dependents:
                other.dependencies |= first.mask | first.dependencies
        return True


def is_row_reduction(node: FusionNode) -> bool:
    """Return whether an equation is a named reduction over trailing dimensions or over all of them."""
    return node.properties.kind in ("row", "all") and isinstance(node.equation.primitive, Reduction)


def fits(node: FusionNode, cluster: Cluster) -> bool:
    """Return whether an equation stays in the cluster's row space."""
    space = node.space
    if node.role == HERO:
        same = node.properties.full == cluster.full and node.properties.reduced == cluster.reduced
        return same and is_row_reduction(node)
    if space == cluster.full:
        if not cluster.wide:
            return False
        if node.role == POINTWISE or node.properties.trivial:
            return True
        if node.role != EXPAND or not node.equation.invars:
            return False
        operand, result = node.equation.invars[0].aval, node.equation.outvars[0].aval
        return leading(operand, result, node.equation.params["broadcast_dimensions"], cluster.out)  # type: ignore[arg-type]
    return space == cluster.out and (node.role == POINTWISE or node.properties.trivial)


def fuse_rows(graph: FusionGraph) -> None:
    """Make groups of row clusters."""
    rows = RowClusters(graph)
    for node in graph.nodes:
        rows.visit(node)
    for cluster in rows.clusters:
        trim(cluster)
        _group(graph, cluster)


def trim(cluster: Cluster) -> None:
    """Remove full values at the end of a cluster that only others read, if their operands are stored anyway.

    Their readers compute them, and the fusion has one result less.
    """
    members = cluster.members
    for index in sorted(members, reverse=True):
        node = members[index]
        if node.role not in TAIL_ROLES or node.is_output or node.space != cluster.full or not node.users:
            continue
        if node.space == cluster.out or any(u.index in members or not _takes(u) for u in node.users):
            continue
        sources = [p for p in node.producers if p is not None and p.index in members]
        if all(p.space == cluster.out or _needs_memory(p, members, node) for p in sources):
            del members[index]


def _takes(user: FusionNode) -> bool:
    """Return whether instruction fusion may put a producer into the user's kernel."""
    return not user.unfused and (user.role != HERO or user.properties.kind in REDUCTIONS)


def _needs_memory(node: FusionNode, members: dict[int, FusionNode], besides: FusionNode) -> bool:
    """Return whether a node is stored for a reader outside of its cluster other than `besides`."""
    return node.is_output or any(u.index not in members and u is not besides for u in node.users)


def _group(graph: FusionGraph, cluster: Cluster) -> FusionGroup:
    """Make the group of a cluster."""
    heroes = [n for n in cluster.members.values() if n.role == HERO]
    after = any(n.role != HERO and n.space == cluster.full != cluster.out for n in cluster.members.values())
    single = not cluster.out and cluster.full
    group = graph.new_group("all" if single and not after else "row", cluster.out)
    group.full, group.reduced = cluster.full, cluster.reduced
    group.hero = min(heroes, key=lambda n: n.index)
    for index in sorted(cluster.members):
        node = cluster.members[index]
        group.add(node, node.size, True)
        node.owner = group
    group.reasons += cluster.reasons
    if len(cluster.members) > 1:
        details = (("reductions", len(heroes)), ("values", len(cluster.members)), ("full values follow", after))
        graph.note(group, FusionReason(RULE, group.hero.label, group.label, True, details))
    return group

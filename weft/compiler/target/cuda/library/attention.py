"""Pattern matching of attention in programs, for cuDNN.

    s = q kᵀ;  s = s scale;  s = s + bias;  s = where(mask, s, -inf);  p = softmax(s);  o = p v

followed by transposes of o, and its cotangents as differentiation writes them. Scale, bias and mask are optional;
shapes may have dimensions of size 1; operands may be one array or slices of one, and so may cotangents; the cotangent
of o may be any array, even o or an operand. Nothing is matched if other equations read what cuDNN never stores (scores,
probabilities). Intermediate values between q, k, v and o are float32, whatever dtypes the program has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from weft.base import dtypes
from weft.compiler.rewrite import new_equation
from weft.compiler.target.cuda.library.attention_groups import (
    AttentionMatch,
    Backward,
    Forward,
    backward_group,
    create_log_sums,
    forward_group,
)
from weft.compiler.target.cuda.library.attention_layouts import (
    AttentionOperand,
    AttentionOperands,
    AttentionResult,
    find_result,
    get_axes,
    pack,
    wide_axes,
)
from weft.compiler.target.cuda.library.attention_masks import Biases, with_biases
from weft.compiler.target.cuda.library.attention_patterns import same_but_ones
from weft.compiler.target.cuda.library.attention_scores import (
    DefinitionChain,
    Scores,
    match_cotangents,
    match_scores,
)
from weft.compiler.target.cuda.library.composites import EquationGroup, JaxprReader, is_operation
from weft.compiler.target.target import Target
from weft.ir.jaxpr import Equation, Jaxpr, Var
from weft.ir.primitive import lookup

TYPES = (dtypes.bfloat16, dtypes.float16)
# The head dimension must be a multiple of the first and at most the second; with fewer positions than the third,
# compiling a plan does not pay off.
WIDTH_MULTIPLE, MOST_WIDTH, LEAST_POSITIONS = 8, 128, 64


# -------------------------------------------------------------------------------------------------------------- search


def with_attention(jaxpr: Jaxpr, target: Target) -> tuple[Jaxpr, list[EquationGroup]]:
    """Find all attention of a jaxpr and its cotangents; return a jaxpr whose masks and biases have the form that
    cuDNN adds, and the groups."""
    if not target.libraries.attention:
        return jaxpr, []
    reader = JaxprReader(jaxpr)
    found = _searches(reader)
    others = [search for search in found if not search.scores.is_plain] if target.libraries.attention_bias else []
    changed = [match for match in (search.match() for search in others) if match]
    biases: Mapping[Any, Biases] = {}
    if changed:
        jaxpr, biases = with_biases(reader, changed)
        found = _searches(JaxprReader(jaxpr))
    usable = [s for s in found if s.scores.is_plain or s.scores.bias in biases]
    return jaxpr, [group for search in usable for group in search.groups(biases.get(search.scores.bias))]


def _searches(reader: JaxprReader) -> list[AttentionSearch]:
    """Return a search for each softmax of a jaxpr."""
    operands = AttentionOperands(reader)
    scores = [match_scores(reader, e) for e in reader.jaxpr.eqns if is_operation(e, "div")]
    return [AttentionSearch(reader, operands, s) for s in scores if s is not None]


class AttentionSearch:
    """Search for the equations around given attention scores."""

    def __init__(self, reader: JaxprReader, operands: AttentionOperands, scores: Scores) -> None:
        self.reader, self.operands, self.scores = reader, operands, scores
        self.queries, self.keys = (operands.operand(scores.product, side, "free") for side in (0, 1))
        self.weighted, self.conversions = _follow_conversions(reader, scores)

    def match(self) -> AttentionMatch | None:
        """Return the attention with these scores, or None if other equations read what cuDNN does not compute."""
        if self.queries is None or self.keys is None or self.queries.dtype not in TYPES:
            return None
        backward = self.backward(self.queries, self.keys)
        forward = self.forward(self.queries, self.keys, backward)
        if forward is None or not _fits(*forward.operands, forward.out):
            return None
        if backward is not None and not _fits_backward(forward, backward):
            backward = None
        results = [forward.out, *(r for r in (backward.results if backward else ()) if r is not None)]
        written = [e for r in results for e in (r.contraction, *r.equations)]
        inside = [*self.forward_equations(forward), *(backward.equations if backward else ()), *written]
        # The cotangent of scores may be read outside, as the cotangent of a bias.
        cotangents = backward.cotangents if backward is not None and self.scores.addition is not None else None
        of_scores = cotangents and {cotangents.scores, *(s.outvars[0] for s in cotangents.selections)}
        needed = None
        for equation in inside:
            for v in equation.outvars:
                is_mask = dtypes.kind(v.aval.dtype) in "bi"
                is_result = any(v is r.value for r in results)
                if is_result or is_mask or not self.reader.is_read_outside(v, inside):
                    continue
                if not of_scores or v not in of_scores:
                    return None
                needed = v
        return AttentionMatch(self.scores, forward, backward, needed)

    def forward_equations(self, forward: Forward) -> list[Equation]:
        """Return the equations of the forward pass."""
        before = [*self.scores.chain.members.values(), *forward.weighted]
        return [*before, forward.contraction, *forward.out.equations]

    def groups(self, biases: Biases | None) -> list[EquationGroup]:
        """Return the groups of equations of the forward and backward calls with these biases; empty if attention
        does not match."""
        match = self.match()
        if match is None:
            return []
        first, second = ((b.array, b.equations) if b else (None, ()) for b in biases or (None, None))
        forward, backward = match.forward, match.backward
        logarithms, stats = create_log_sums(self.scores)
        own = [e for e in self.forward_equations(forward) if all(e is not other for other in forward.computed)]
        equations = (*first[1], *self.in_order([*forward.cuts, *own]), *forward.computed, *logarithms)
        groups = [forward_group(match._replace(bias=first[0]), stats, equations)]
        if backward is None:
            return groups
        if all(backward.results):
            dq, dk, dv = pack(self.reader, [r for r in backward.results if r])
            backward = backward._replace(results=(dq, dk, dv))
        after = [e for r in backward.results if r is not None for e in (r.contraction, *r.equations)]
        before = [*self.scores.chain.members.values(), *forward.weighted]
        of_scores, written = self.written(match)
        again = self.in_order([*forward.cuts, *backward.cuts, *before, *backward.equations, *written, *after])
        match = match._replace(backward=backward, bias=second[0], of_scores=of_scores)
        return [*groups, backward_group(match, stats, (*second[1], *again))]

    def written(self, match: AttentionMatch) -> tuple[Var | None, list[Equation]]:
        """Return the cotangent of scores in the dtype that cuDNN writes, if other equations read it, and the
        conversion to that dtype."""
        value, dtype = match.of_scores, match.forward.out.value.aval.dtype  # type: ignore[attr-defined]
        if value is None or value.aval.dtype == dtype:  # type: ignore[attr-defined]
            return value, []
        inside = match.backward.equations if match.backward is not None else ()
        (conversion,) = (e for e in self.reader.readers[value] if all(e is not other for other in inside))
        return conversion.outvars[0], [conversion]

    def in_order(self, equations: Iterable[Equation]) -> list[Equation]:
        """Remove duplicates from equations and sort them by their position in the program."""
        return sorted({id(e): e for e in equations}.values(), key=self.reader.position)

    # -- forward ---------------------------------------------------------------------------------------------------

    def forward(self, q: AttentionOperand, k: AttentionOperand, backward: Backward | None) -> Forward | None:
        """Match the forward pass with these scores."""
        cuts = tuple(e for side in (0, 1) for e in self.operands.equations(self.scores.product, side, "free"))
        for contraction in self.reader.readers.get(self.weighted, ()):
            if not is_operation(contraction, "dot_general") or contraction.invars[0] is not self.weighted:
                continue
            axes = get_axes(contraction, 0)
            last = len(self.weighted.aval.shape) - 1  # type: ignore[attr-defined]
            v = self.operands.operand(contraction, 1, "contracted")
            if v is None or axes.contracted != (last,) or axes.batch != tuple(sorted(axes.batch)):
                continue
            out = find_result(self.reader, contraction, q.dtype, 0)
            if out is not None:
                cuts += self.operands.equations(contraction, 1, "contracted")
                return Forward((q, k, v), out, contraction, self.conversions, cuts, [])
        return None if backward is None else self.create_forward(q, k, backward, cuts)

    def create_forward(
        self, q: AttentionOperand, k: AttentionOperand, backward: Backward, cuts: tuple[Equation, ...]
    ) -> Forward | None:
        """Create the forward pass if the program has only its cotangents."""
        product = backward.cotangents.product
        v = self.operands.operand(product, 1, "free")
        if v is None:
            return None
        value, axes = product.invars[1], get_axes(product, 1)
        weighted: Any = self.weighted
        computed: list[Equation] = []
        if weighted.aval.dtype != v.dtype:
            params: dict[str, Any] = {"new_dtype": v.dtype, "weak_type": False}
            computed.append(new_equation(lookup("convert_element_type"), [weighted], params, product))
            weighted = computed[-1].outvars[0]
        *batch, _, key = wide_axes(weighted, range(len(weighted.aval.shape)))
        of_value = wide_axes(value, axes.batch)
        if len(batch) != len(of_value):
            return None
        dimensions = (((key,), tuple(wide_axes(value, axes.free))), (tuple(batch), tuple(of_value)))
        params = {**product.params, "dimension_numbers": dimensions, "preferred_element_type": v.dtype}
        computed.append(new_equation(lookup("dot_general"), [weighted, value], params, product))
        contraction = computed[-1]
        out = find_result(self.reader, contraction, q.dtype, 0)
        if out is None:
            return None
        cuts += self.operands.equations(product, 1, "free")
        return Forward((q, k, v), out, contraction, self.conversions, cuts, computed)

    # -- backward --------------------------------------------------------------------------------------------------

    def backward(self, q: AttentionOperand, k: AttentionOperand) -> Backward | None:
        """Match the cotangents of q, k and v, as far as the program has them."""
        for contraction, side in self.find_contractions(k, "keys") + self.find_contractions(q, "queries"):
            chain = DefinitionChain(self.reader)
            of_scores = chain.source(contraction.invars[1 - side])
            cotangents = match_cotangents(chain, self.scores, of_scores)
            cotangent = None if cotangents is None else self.operands.operand(cotangents.product, 0, "free")
            if cotangents is None or cotangent is None:
                continue
            wanted = (
                (k, "keys", of_scores),
                (q, "queries", of_scores),
                (cotangent, "queries", self.scores.probabilities),
            )
            found = [self.contraction(chain, *each) for each in wanted]
            # The head dimension is a free axis of the array, positions are free axes of scores.
            results = [f and find_result(self.reader, f[0], q.dtype, 1 - f[1]) for f in found]
            if any(f and not r for f, r in zip(found, results, strict=True)):
                continue
            cuts = [e for f in found if f for e in self.operands.equations(*f, "contracted")]
            cuts += self.operands.equations(cotangents.product, 0, "free")
            dq, dk, dv = (r or None for r in results)
            return Backward(cotangents, cotangent, (dq, dk, dv), list(chain.members.values()), tuple(cuts))
        return None

    def find_contractions(self, array: AttentionOperand, along: str) -> list[tuple[Equation, int]]:
        """Return the contractions of an array, along its positions, with scores along `along`; and the operand side
        of the array."""
        return [
            (e, side)
            for e in self.operands.contractions
            for side in (0, 1)
            if self.operands.operand(e, side, "contracted") == array and _along(e, 1 - side) == along
        ]

    def contraction(
        self, chain: DefinitionChain, array: AttentionOperand, along: str, scores: Any
    ) -> tuple[Equation, int] | None:
        """Return the contraction of an array with these scores, and the operand side of the array."""
        for equation, side in self.find_contractions(array, along):
            before = dict(chain.members)
            if chain.source(equation.invars[1 - side]) is scores:
                return equation, side
            chain.members = before
        return None


def _along(contraction: Equation, side: int) -> str:
    """Return the dimension of scores that a contraction sums: `keys` (the last), `queries` (the one before), or an
    empty string."""
    atom = contraction.invars[side]
    wide = wide_axes(atom, range(len(atom.aval.shape)))  # type: ignore[attr-defined]
    summed = wide_axes(atom, get_axes(contraction, side).contracted)
    return "keys" if summed == wide[-1:] else "queries" if summed == wide[-2:-1] else ""


def _follow_conversions(reader: JaxprReader, scores: Scores) -> tuple[Var, list[Equation]]:
    """Follow conversions of the probabilities up to the contraction with v; return the last value and the
    conversions."""
    value = scores.probabilities
    equations: list[Equation] = []
    while True:
        found = [
            e
            for e in reader.readers.get(value, ())
            if is_operation(e, "convert_element_type") or (is_operation(e, "reshape") and same_but_ones(e))
        ]
        if len(found) != 1:
            return value, equations
        equations += found
        value = found[0].outvars[0]


def _fits(q: AttentionOperand, k: AttentionOperand, v: AttentionOperand, out: AttentionResult) -> bool:
    """Return whether the shapes are consistent and cuDNN has kernels for them."""
    layouts = (q.layout, k.layout, v.layout, out.layout)
    same = len({(layout.batch, layout.width) for layout in layouts}) == 1 and q.dtype == k.dtype == v.dtype
    positions = q.layout.positions == out.layout.positions and k.layout.positions == v.layout.positions
    several = all(a.layout.positions >= LEAST_POSITIONS for a in (q, k))
    width = q.layout.width
    return same and positions and several and not width % WIDTH_MULTIPLE and width <= MOST_WIDTH


def _fits_backward(forward: Forward, backward: Backward) -> bool:
    """Return whether cotangents have the shapes of their primals."""
    wanted = [a.layout[:3] for a in (*forward.operands, forward.out)]
    found = [None if b is None else b.layout[:3] for b in (*backward.results, backward.cotangent)]
    same = all(b is None or a == b for a, b in zip(wanted, found, strict=True))
    return bool(same and backward.cotangent.dtype == forward.operands[0].dtype)

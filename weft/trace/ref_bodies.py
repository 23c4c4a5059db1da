"""Bodies of loops and branches that touch mutable arrays from outside: the arrays' values become arguments and
results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from weft.ir.jaxpr import Jaxpr, Var
from weft.trace.refs import Touched


def with_equal_refs(jaxprs: Sequence[Jaxpr], touches: Sequence[Sequence[Touched]]) -> tuple[list[Jaxpr], list[Touched]]:
    """Return branches that all take the values of the mutable arrays that any of them touches, and return those that
    any writes."""
    written = {id(t.ref): False for own in touches for t in own}
    for own in touches:
        for t in own:
            written[id(t.ref)] |= t.written
    refs = {id(t.ref): t.ref for own in touches for t in own}
    found = []
    for jaxpr, own in zip(jaxprs, touches, strict=True):
        first, last = len(jaxpr.invars) - len(own), len(jaxpr.outvars) - sum(t.written for t in own)
        arguments = {id(t.ref): v for t, v in zip(own, jaxpr.invars[first:], strict=True)}
        finals = dict(zip([id(t.ref) for t in own if t.written], jaxpr.outvars[last:], strict=True))
        taken = {key: arguments.get(key) or Var(ref.inner_aval) for key, ref in refs.items()}
        returned = [finals.get(key, taken[key]) for key in refs if written[key]]
        found.append(
            jaxpr.replace(invars=[*jaxpr.invars[:first], *taken.values()], outvars=[*jaxpr.outvars[:last], *returned])
        )
    return found, [Touched(ref, written[key]) for key, ref in refs.items()]


class LoopRefs(NamedTuple):
    """Mutable arrays from outside that the bodies of a loop touch: written ones are carried, others are constants."""

    constant: list[Touched]
    carried: list[Touched]

    @staticmethod
    def of(*touches: Sequence[Touched]) -> LoopRefs:
        refs: dict[int, Touched] = {}
        for own in touches:
            for t in own:
                known = refs.get(id(t.ref))
                refs[id(t.ref)] = Touched(t.ref, t.written or (known is not None and known.written))
        found = list(refs.values())
        return LoopRefs([t for t in found if not t.written], [t for t in found if t.written])

    def arrange(self, jaxpr: Jaxpr, own: Sequence[Touched], num_consts: int, num_carry: int, carries: bool) -> Jaxpr:
        """Return a body that takes the arrays' values after its constants and after its carry, and returns the carried
        ones after the carry if it `carries`; the body as traced has them last."""
        first = len(jaxpr.invars) - len(own)
        arguments = {id(t.ref): v for t, v in zip(own, jaxpr.invars[first:], strict=True)}
        taken = [
            [arguments.get(id(t.ref)) or Var(t.ref.inner_aval) for t in part] for part in (self.constant, self.carried)
        ]
        split = num_consts + num_carry
        arranged = [
            *jaxpr.invars[:num_consts], *taken[0], *jaxpr.invars[num_consts:split], *taken[1],
            *jaxpr.invars[split:first],
        ]  # fmt: skip
        outs = list(jaxpr.outvars)
        if carries:
            last = len(outs) - sum(t.written for t in own)
            finals = dict(zip([id(t.ref) for t in own if t.written], outs[last:], strict=True))
            new = [finals.get(id(t.ref), v) for t, v in zip(self.carried, taken[1], strict=True)]
            outs = [*outs[:num_carry], *new, *outs[num_carry:last]]
        return jaxpr.replace(invars=arranged, outvars=outs)

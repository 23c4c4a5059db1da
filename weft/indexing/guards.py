"""Questions about symbolic integers that have an answer for given sizes only.

Code that runs on symbols evaluates `t >= 16` or `int(t)`. Without sizes such a question has no answer. Under
`deciding(sizes)` it is answered for these sizes and recorded as a `Guard`: the code behaves the same for all sizes that
satisfy the guards. Emitters run this way (`compiler/family/`), and their guards define the classes of sizes that have
kernels of their own.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

from weft.base.dataclass import dataclass
from weft.base.source import is_generated, is_internal, is_own, user_line

# Relations of a guard's expression to zero.
NOT_NEGATIVE, NEGATIVE, ZERO, NOT_ZERO = ">= 0", "< 0", "== 0", "!= 0"


@dataclass(frozen=True)
class Guard:
    """Condition `expression relation`, where the relation compares with zero."""

    expression: Any
    relation: str

    def __str__(self) -> str:
        return f"{self.expression} {self.relation}"


@dataclass(frozen=True)
class RuleGuard:
    """Condition `rule(fixed, values of the expressions) == result`, for choices that a few comparisons cannot
    describe."""

    rule: Callable[[Any, tuple[int, ...]], Any]
    fixed: Any
    expressions: tuple[Any, ...]
    result: Any

    def __str__(self) -> str:
        return f"{self.rule.__name__}({', '.join(map(str, self.expressions))}) is {self.result}"


class Answers:
    """Answers for given sizes, with the guards under which the same answers are right."""

    # Whether sizes are declared to be symbols: see `DeclaredAnswers`.
    declared = False

    def __init__(self, sizes: Mapping[Any, int], user_code: bool = True) -> None:
        self.sizes = sizes  # by symbol
        self.user_code = user_code  # whether code that is not Weft's may be asking
        self._guards: dict[Any, Guard | RuleGuard] = {}
        self.remembered: dict[Any, Any] = {}  # what was computed while questions are answered so
        self.constants = 0  # number of values that became constants
        self.first_constant = ""  # ... and the reason of the first, in words

    @property
    def guards(self) -> tuple[Guard | RuleGuard, ...]:
        return tuple(self._guards.values())

    def value(self, expression: Any) -> int:
        """Return the value of an expression without a guard: nothing may depend on it."""
        result: int = expression.substitute(self.sizes)
        return result

    def cover(self, expression: Any) -> bool:
        """Return whether an expression is over these sizes only, and not over other symbols such as indices."""
        return all(symbol in self.sizes for symbol in expression.symbols)

    def know(self, expression: Any) -> bool:
        """Return whether an expression has a value under these sizes, or an answer to whether it equals another."""
        return self.cover(expression)

    def is_nonnegative(self, expression: Any) -> bool:
        holds = self.value(expression) >= 0
        self._ask(expression, NOT_NEGATIVE if holds else NEGATIVE)
        return holds

    def is_zero(self, expression: Any) -> bool:
        holds = self.value(expression) == 0
        self._ask(expression, ZERO if holds else NOT_ZERO)
        return holds

    def constant(self, expression: Any) -> int:
        """Return the value of an expression and guard that it stays this constant."""
        value = self.value(expression)
        self._ask(expression - value, ZERO)
        if not self.constants:
            at = user_line()
            self.first_constant = f"the size {expression} is needed as a number{'' if at is None else f' at {at}'}"
        self.constants += 1
        return value

    def seen_outside(self, expression: Any, above: int = 2) -> int | None:
        """Return the value of an expression if user code called the method `above` frames up, to print it or look it up
        in a table; None if Weft's own code did. User code may do anything with the value, so it becomes a constant."""
        caller = sys._getframe(above)
        if caller.f_code.co_filename.startswith(_HERE) or not _is_outside(caller) or not self.cover(expression):
            return None
        return self.constant(expression)

    def decide(self, rule: Callable[[Any, tuple[int, ...]], Any], fixed: Any, integers: tuple[Any, ...]) -> Any:
        """Return the result of a rule for the values of `integers`, which include expressions, and guard it."""
        result = rule(fixed, tuple([i if isinstance(i, int) else self.value(i) for i in integers]))
        self._guards.setdefault((rule, fixed, integers), RuleGuard(rule, fixed, integers, result))
        return result

    def _ask(self, expression: Any, relation: str) -> None:
        self._guards.setdefault((expression, relation), Guard(expression, relation))


class DeclaredAnswers(Answers):
    """Answers about sizes that were declared to be symbols. Weft's own code gets the answer for all values of the
    symbols to whether two sizes are equal, as shapes must be; other code gets the answer for the sizes of the call.
    Where a size is needed as a number it raises, so that declared sizes stay symbolic."""

    declared = True

    def know(self, expression: Any) -> bool:
        return self.cover(expression) and _is_outside(sys._getframe(1))


class Assumption(NamedTuple):
    """Assumption that `expression` is not zero, and the line that depends on it."""

    expression: Any
    line: str


class Assumptions(Answers):
    """Answers before there are sizes. When user code compares two sizes that are equal for some values of the symbols
    only, the answer is that they differ. That is an assumption, to be checked when sizes are known. Other questions
    without a single answer raise."""

    declared = True

    def __init__(self) -> None:
        super().__init__({})
        self.assumed: dict[Any, Assumption] = {}

    def cover(self, expression: Any) -> bool:
        return False

    def know(self, expression: Any) -> bool:
        return _is_outside(sys._getframe(1))

    def is_zero(self, expression: Any) -> bool:
        self.assumed.setdefault(expression, Assumption(expression, str(user_line() or "")))
        return False


_HERE = os.path.dirname(__file__) + os.sep


def _is_outside(frame: Any) -> bool:
    """Return whether the frame is user code that called methods of the expression, directly or through the standard
    library."""
    while frame is not None:
        name = frame.f_code.co_filename
        if is_own(name):
            if not name.startswith(_HERE):
                return False
        elif not is_internal(name) and not is_generated(frame.f_code):
            return True
        frame = frame.f_back
    return False


def is_asked_outside(above: int = 2) -> bool:
    """Return whether user code called the method, directly or through the standard library. The caller of that method
    is `above` frames up."""
    caller = sys._getframe(above)
    return not is_own(caller.f_code.co_filename) and _is_outside(caller)


class _Current(threading.local):
    answers: Answers | None = None


current = _Current()

_A = TypeVar("_A", Answers, "Answers | None")


@contextmanager
def deciding(sizes: Mapping[Any, int], user_code: bool = True) -> Iterator[Answers]:
    """Answer questions in this thread for these sizes. Without `user_code` only Weft's own code runs."""
    with answering(Answers(sizes, user_code)) as answers:
        yield answers


@contextmanager
def answering(answers: _A) -> Iterator[_A]:
    """Answer questions in this thread by `answers`."""
    before, current.answers = current.answers, answers
    try:
        yield answers
    finally:
        current.answers = before


@contextmanager
def suspend_answers() -> Iterator[None]:
    """Suspend answers, for results that are memoized beyond the current sizes."""
    before, current.answers = current.answers, None
    try:
        yield
    finally:
        current.answers = before


def has_answer(integer: Any) -> bool:
    """Return whether questions about an integer have an answer: it is a number, or the current sizes determine it."""
    return isinstance(integer, int) or (current.answers is not None and current.answers.know(integer))


def has_known_sign(integer: Any) -> bool:
    """Return whether the sign of an integer is known: it is a number, or an expression over the current sizes."""
    return isinstance(integer, int) or (current.answers is not None and current.answers.cover(integer))


def decide(rule: Callable[[Any, tuple[int, ...]], Any], fixed: Any, integers: Sequence[Any]) -> Any:
    """Return `rule(fixed, integers)`, for the current sizes if some of the integers are symbolic. Code that depends on
    the result only is right for all sizes for which the rule returns the same."""
    if current.answers is None or all(isinstance(i, int) for i in integers):
        return rule(fixed, tuple(integers))
    return current.answers.decide(rule, fixed, tuple(integers))


def checker(guards: Sequence[Guard | RuleGuard], symbols: Sequence[Any]) -> Callable[..., bool]:
    """Compile guards to a function of the symbols' values that returns whether all of them hold."""
    texts: list[str] = []
    names: dict[str, Any] = {}
    # In the order of the questions: later ones may be meaningful only where earlier ones hold.
    for n, guard in enumerate(guards):
        if isinstance(guard, Guard):
            texts.append(str(guard))
            continue
        names |= {f"_rule{n}": guard.rule, f"_fixed{n}": guard.fixed, f"_result{n}": guard.result}
        values = "".join(f"{e}, " for e in guard.expressions)
        texts.append(f"_rule{n}(_fixed{n}, ({values})) == _result{n}")
    return compile_expression(" and ".join(texts) or "True", symbols, names)


def compile_expression(text: str, symbols: Sequence[Any], names: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """Compile the text of an expression to a function of the symbols' values."""
    known = {"__builtins__": {}, "min": min, "max": max, **(names or {})}
    function: Callable[..., Any] = eval(f"lambda {', '.join(s.name for s in symbols)}: {text}", known)
    return function


def compile_with_sharing(text: str, symbols: Sequence[Any], before: Sequence[str] = ()) -> Callable[..., Any]:
    """Compile a long expression as `compile_expression` does, computing equal calls of `min` and `max` once. The lines
    `before` define further names. All of the expression is computed."""
    lines: list[str] = []
    while (start := max(text.rfind("max("), text.rfind("min("))) >= 0:
        # The last call contains no other call.
        level, end = 1, start + 4
        while level:
            level += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        call, name = text[start:end], f"_{len(lines)}_"
        lines.append(f" {name} = {call}\n")
        text = text.replace(call, name)
    known: dict[str, Any] = {"__builtins__": {}, "min": min, "max": max}
    body = "".join([f" {line}\n" for line in before] + lines)
    exec(f"def function({', '.join(s.name for s in symbols)}):\n{body} return {text}", known)
    function: Callable[..., Any] = known["function"]
    return function

"""Check the subject of a commit message: scope, imperative mood, at most 72 characters.

    python tools/commit_message.py .git/COMMIT_EDITMSG      the file of a message, as a `commit-msg` hook passes it
    git log -1 --format=%s | python tools/commit_message.py -

A subject is read in lists and by people who bisect, so it says what the commit does to which part of the code:
"fuse: merge sibling reductions over the same space". The reasons go to the body, after an empty line.
"""

from __future__ import annotations

import pathlib
import re
import sys
from collections.abc import Iterator

LONGEST = 72
SUBJECT = re.compile(r"(?P<scope>[\w.,/*+ -]+): (?P<text>\S.*)")
WRITTEN_BY_GIT = re.compile(r"(Merge|Revert|fixup!|squash!|amend!) ")
"""Subjects that Git writes itself."""
ARTICLES = frozenset(
    [
        "the",
        "a",
        "an",
        "one",
        "some",
        "all",
        "both",
        "each",
        "every",
        "no",
        "none",
        "there",
        "it",
        "this",
        "that",
        "these",
        "those",
    ]
)
RELATIVES = frozenset(["what", "whether", "how", "which", "where", "who", "when", "why", "as"])
ENDS = re.compile(r"[a-z]{3,}(?:ed|ing)")
"""Endings of participles and gerunds: "added", "adding"."""
VERBS = frozenset(["bring", "need", "embed", "exceed", "feed", "proceed", "seed", "shed", "speed", "string"])
"""Verbs in the imperative that end as a participle does."""


def faults(message: str) -> Iterator[str]:
    """Yield each rule that a commit message breaks."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0] if lines else ""
    if WRITTEN_BY_GIT.match(subject):
        return
    if len(subject) > LONGEST:
        yield f"The subject must have at most {LONGEST} characters, got {len(subject)}."
    if len(lines) > 1 and lines[1].strip():
        yield "The second line must be empty: the body begins on the third."
    match = SUBJECT.fullmatch(subject)
    if match is None:
        yield 'The subject must name a scope and then what the commit does: "fuse: merge sibling reductions".'
        return
    text = match["text"]
    first = re.split(r"\W", text)[0].lower()
    if first in ARTICLES | RELATIVES:
        yield f'The subject must begin with a verb in the imperative after its scope, got "{first}".'
    elif ENDS.fullmatch(first) and first not in VERBS:
        yield f'The verb must be in the imperative ("add", not "added" or "adding"), got "{first}".'
    if text.endswith("."):
        yield "The subject must not end with a full stop."


def main(arguments: list[str]) -> int:
    """Print what is wrong with the message of a file, or of standard input for "-"."""
    if len(arguments) != 1:
        print(__doc__)
        return 2
    message = sys.stdin.read() if arguments == ["-"] else pathlib.Path(arguments[0]).read_text(encoding="utf-8")
    found = list(faults(message))
    for fault in found:
        print(fault, file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

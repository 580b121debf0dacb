"""Checks the form of a commit message: `check_commit_message.py FILE`. pre-commit runs it in the stage commit-msg."""

from __future__ import annotations

import re
import sys
from pathlib import Path

SUBJECT_WIDTH = 72
BODY_WIDTH = 76
_SCISSORS = "# ------------------------ >8 ------------------------"
_WRITTEN_BY_GIT = ("Merge ", "Revert ", "fixup! ", "squash! ", "amend! ")
_TRAILER = re.compile(r"[A-Z][A-Za-z-]+: \S")
# Imperative verbs that end like another form.
_IMPERATIVES = {
    "address", "bring", "bypass", "compress", "cross", "discuss", "embed", "exceed", "feed", "focus", "need", "pass",
    "press", "process", "proceed", "seed", "shed", "speed", "spring", "string", "succeed", "suppress",
}  # fmt: skip


def problems(message: str) -> list[str]:
    """Everything that is wrong with the message; nothing if it is well-formed."""
    lines = _without_comments(message)
    if not lines:
        return ["The message is empty: write a subject and a body that says why."]
    if lines[0].startswith(_WRITTEN_BY_GIT):
        return []
    return [*_subject_problems(lines[0]), *_body_problems(lines[1:])]


def _without_comments(message: str) -> list[str]:
    lines = message.partition(_SCISSORS)[0].splitlines()
    kept = [line.rstrip() for line in lines if not line.startswith("#")]
    while kept and not kept[-1]:
        kept.pop()
    while kept and not kept[0]:
        kept.pop(0)
    return kept


def _subject_problems(subject: str) -> list[str]:
    found = []
    verb = subject.split()[0]
    if len(subject) > SUBJECT_WIDTH:
        found.append(f"The subject has {len(subject)} characters: use at most {SUBJECT_WIDTH}.")
    if not verb[0].isupper():
        found.append(f"The subject starts with {verb!r}: start with a capital letter.")
    if subject.endswith("."):
        found.append("The subject ends with a full stop: remove it.")
    if _is_not_imperative(verb.lower()):
        found.append(f"The subject starts with {verb!r}: use the imperative, as in 'Release prefetched jobs'.")
    return found


def _is_not_imperative(verb: str) -> bool:
    """A rough test: other forms of a verb, articles and pronouns."""
    is_other_form = verb.endswith(("s", "ed", "ing")) and verb not in _IMPERATIVES
    return is_other_form or verb in ("a", "an", "the", "it", "we", "i", "what", "when", "no")


def _body_problems(rest: list[str]) -> list[str]:
    found = []
    if rest and rest[0]:
        found.append("The second line is not empty: separate the subject from the body.")
    body = [line for line in rest if line and not _TRAILER.match(line)]
    if not body:
        found.append("There is no body: say why this change is made.")
    long_lines = [line for line in body if len(line) > BODY_WIDTH and " " in line.strip()]
    found += [f"This line has {len(line)} characters, use at most {BODY_WIDTH}: {line}" for line in long_lines]
    return found


def main(arguments: list[str]) -> int:
    found = problems(Path(arguments[0]).read_text(encoding="utf-8"))
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

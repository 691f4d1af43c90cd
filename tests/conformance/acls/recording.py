"""Kafka's answers to all cells, in a file: of each request every answer, and below it the users who get it.

# Heartbeat v4, gj
{error_code=GROUP_AUTHORIZATION_FAILED}
  nobody topic-read ...
{error_code=UNKNOWN_MEMBER_ID}
  group-read ...
"""

from __future__ import annotations

from pathlib import Path

from conformance.acls.asking import Answers

RECORDED = Path(__file__).parent / "recorded.txt"


def write(path: Path, answers: Answers) -> None:
    lines = []
    for request, by_user in answers.items():
        lines += ["", f"# {request}"]
        users: dict[str, list[str]] = {}
        for user, answer in by_user.items():
            users.setdefault(answer, []).append(user)
        for answer, those in users.items():
            lines += [answer, f"  {' '.join(those)}"]
    path.write_text("\n".join(lines[1:]) + "\n")


def read(path: Path) -> Answers:
    answers: Answers = {}
    request, answer = "", ""
    for line in path.read_text().splitlines():
        if line.startswith("# "):
            request = line[2:]
            answers[request] = {}
        elif line.startswith("  "):
            answers[request] |= dict.fromkeys(line.split(), answer)
        elif line:
            answer = line
    return answers

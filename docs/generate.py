"""Prints the pages of docs/ that are made from the code. `make docs` writes them; a test holds them true."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

from coterie.broker.ignored import IGNORED
from coterie.broker.setting import Part, Setting
from coterie.broker.settings import SETTINGS
from coterie.broker.sources import ALIASES
from coterie.broker.topic_configs import TOPIC_CONFIGS
from coterie.errors import ErrorCode
from coterie.group.states import NEXT, TABLES, Answer, Do, State

HERE = Path(__file__).parent
SHORT = {
    Do.CREATE: "create",
    Do.START_ROUND: "**round**",
    Do.PARK: "park",
    Do.REPEAT: "repeat",
    Do.COLLECT: "collect",
    Do.RECHECK: "re-check",
    Do.REPLACE: "replace",
    Do.TAKE: "take",
    Do.TAKE_IF_CONSUMER: "take if consumer",
    Do.NOTHING: "nothing",
}


def states() -> str:
    lines = [
        "# States of a group",
        "",
        "Made from `coterie.group.states` by `make docs`; the rules behind it are in [semantics.md](semantics.md).",
        "",
        "```mermaid",
        "stateDiagram-v2",
        *(f"    {state} --> {target}" for state in State for target in State if target in NEXT[state]),
        "```",
        "",
        "## What each state answers",
        "",
        "An error code is the answer. Every cell is played by `tests/group/test_states.py`.",
        "",
        "| | " + " | ".join("Dead, absent" if state is State.DEAD else state.value for state in State) + " |",
        "|---" * (len(State) + 1) + "|",
        *(f"| {name} | " + " | ".join(_cell(table[state]) for state in State) + " |" for name, table in TABLES.items()),
        "",
        "| word | meaning |",
        "|---|---|",
        *(f"| {SHORT[what]} | {what.value} |" for what in Do),
    ]
    return "\n".join(lines) + "\n"


def _cell(what: Answer) -> str:
    if isinstance(what, ErrorCode):
        return what.name
    return SHORT[what]


ABOUT_SETTINGS = """# Settings

Made from `coterie.broker.settings` by `make docs`. Names, types and defaults are those of Apache Kafka 4.3.1; ours \
begin with `coterie.`.

They are read from a properties file (`--config`), then from the environment, then from `--set name=value`; the later \
one counts. A variable is named as Kafka's image names it, `KAFKA_NUM_PARTITIONS`, or `COTERIE_NUM_PARTITIONS`, which \
counts more; `COTERIE_FLUSH` is `coterie.flush`. In Python: `Broker(settings={"num.partitions": 4})`. A name that is \
unknown or a value that is not allowed is refused, with the nearest name or with what is allowed.
"""


def settings() -> str:
    """One table a part, then the topics' own, then what is ignored."""
    lines = [
        ABOUT_SETTINGS,
        "Second names: " + ", ".join(f"`{alias}` is `{name}`" for alias, name in ALIASES.items()) + ".",
    ]
    for part in Part:
        rows = [row for row in SETTINGS.values() if row.part is part]
        lines += ["", f"## {part.value}", "", *_settings_table([row for row in rows if not row.unused])]
        unused = [row for row in rows if row.unused]
        if unused:
            lines += ["", "Accepted, described, and without effect:", "", "| name | default | why |", "|---|---|---|"]
            lines += [f"| `{row.name}` | {_default(row)} | {row.unused} |" for row in unused]
    lines += [
        "",
        "## What a topic can have of its own",
        "",
        "CreateTopics, AlterConfigs and IncrementalAlterConfigs set them.",
        "",
        "| name | allowed | default from | |",
        "|---|---|---|---|",
        *(
            f"| `{config.name}` | {config.kind.allowed} | "
            f"{', '.join(f'`{name}`' for name in config.behind) or '-'} | {config.doc} |"
            for config in TOPIC_CONFIGS.values()
        ),
        "",
        "## What Kafka has and we have not",
        "",
        "Accepted, so that a file or an environment made for Kafka works, and named in the log.",
        "",
        "| why | names |",
        "|---|---|",
        *(f"| {reason} | {', '.join(f'`{name}`' for name in names)} |" for reason, names in IGNORED.items()),
    ]
    return "\n".join(lines) + "\n"


def _settings_table(rows: list[Setting]) -> list[str]:
    return [
        "| name | default | allowed | |",
        "|---|---|---|---|",
        *(
            f"| `{row.name}` | {_default(row)} | {row.kind.allowed} | {row.doc}{row.why and f' Why: {row.why}.'} |"
            for row in rows
        ),
    ]


def _default(row: Setting) -> str:
    text = row.text(row.default)
    return f"`{text}`" if text else "-"


ABOUT_DIFFERENCES = """# Where we differ from Kafka 4.3.1 on purpose

Made from `tests/conformance/differences.toml` by `make docs`. `make conformance` asks Apache Kafka 4.3.1 and us the \
same in some thousand cases, and everything else must be equal, down to the order of members in an answer. \
`make test` does so with what Kafka was recorded to say.

## Seen in the recorded cases

A row that none of them shows fails the tests.
"""


def differences() -> str:
    rows = tomllib.loads((HERE.parent / "tests" / "conformance" / "differences.toml").read_text())
    elsewhere = ["", "## Elsewhere", "", "Each is held by a test of its own.", ""]
    return "\n".join(
        [
            ABOUT_DIFFERENCES,
            *_differences_table(rows["recorded"]),
            *elsewhere,
            *_differences_table(rows["elsewhere"]),
            "",
        ]
    )


def _differences_table(rows: list[dict[str, str]]) -> list[str]:
    columns = ("what", "kafka", "ours", "why")
    lines = ["| case | Kafka | ours | why |", "|---|---|---|---|"]
    return [*lines, *("| " + " | ".join(row[column] for column in columns) + " |" for row in rows)]


PAGES: Mapping[str, Callable[[], str]] = {
    "states.md": states,
    "settings.md": settings,
    "differences.md": differences,
}


def main() -> None:
    for name, page in PAGES.items():
        (HERE / name).write_text(page())


if __name__ == "__main__":
    main()

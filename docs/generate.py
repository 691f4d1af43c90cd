"""Prints the pages of docs/ that are made from the code. `make docs` writes them; a test holds them true."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

from cli_page import cli
from coterie.broker.configs.broker_settings import SETTINGS, Part
from coterie.broker.configs.ignored_settings import IGNORED
from coterie.broker.configs.setting_names import ALIASES
from coterie.broker.configs.topic_configs import TOPIC_CONFIGS
from coterie.client.client_settings import TABLES, AdminSettings, ClientSettings, ConsumerSettings, ProducerSettings
from coterie.client.client_settings import Part as ClientPart
from coterie.client.event_log import LINES
from coterie.client.member import states as member_states
from coterie.client.metrics import ADMIN_ROWS, CONSUMER_ROWS, PARTITION_ROWS, PRODUCER_ROWS
from coterie.client.refused_settings import REFUSED
from coterie.coordinator.classic.states import NEXT, Answer, Do, State
from coterie.coordinator.classic.states import TABLES as STATE_TABLES
from coterie.errors import ErrorCode
from coterie.protocol.apis.__main__ import page as apis
from coterie.settings.setting import Setting
from coterie.spark.options import OPTIONS, Use
from coterie.spark.schemas import TABLES as TABLES_OF_GROUPS
from coterie.spark.schemas import spark_type
from coverage_page import coverage
from facts_page import facts_page
from pictures import PICTURES
from settings_kwargs import settings_kwargs
from state_picture import state_picture

HERE = Path(__file__).parent
SHORT = {
    Do.CREATE: "create",
    Do.START_REBALANCE: "**rebalance**",
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
        "Made from `coterie.coordinator.classic.states` by `make docs`; the rules are in [semantics.md](semantics.md).",
        "",
        "![Which state may follow which](states.svg)",
        "",
        "| from | to |",
        "|---|---|",
        *(f"| {state} | {', '.join(target for target in State if target in NEXT[state])} |" for state in State),
        "",
        "## What each state answers",
        "",
        "An error code is the answer. Every cell is played by `tests/group/test_states.py`.",
        "",
        "| | " + " | ".join("Dead, absent" if state is State.DEAD else state.value for state in State) + " |",
        "|---" * (len(State) + 1) + "|",
        *(
            f"| {name} | " + " | ".join(_cell(table[state]) for state in State) + " |"
            for name, table in STATE_TABLES.items()
        ),
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

Made from `coterie.broker.configs.broker_settings` by `make docs`. Names, types and defaults are those of Apache Kafka \
4.3.1; ours begin with `coterie.`.

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
        lines += ["", f"## {part.value}", "", *_with_unused(rows)]
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


ABOUT_CLIENT_SETTINGS = """# Settings of the clients

Made from `coterie.client.client_settings` by `make docs`. Names, types and defaults are those of the Java clients \
of Apache Kafka 4.3.1; ours begin with `coterie.`.

In Python they are given with dots or with underscores, `Consumer({"group.id": "orders"})` or \
`Consumer(group_id="orders")`; to a command as a properties file (`--config`) or by `--set name=value`, which counts \
more. A name that is unknown or a value that is not allowed is refused, with the nearest name or with what is allowed.
"""


def client_settings() -> str:
    """What all clients have, then what each has besides or otherwise, then what is refused."""
    common = TABLES[ClientSettings].rows
    lines = [ABOUT_CLIENT_SETTINGS]
    own = {
        kind: [row for row in TABLES[kind].rows.values() if common.get(row.name) != row]
        for kind in (ConsumerSettings, ProducerSettings, AdminSettings)
    }
    lines += ["", f"## {ClientPart.CLIENT.value}", "", *_with_unused(list(common.values()))]
    consumer = own[ConsumerSettings]
    for part in (ClientPart.GROUP, ClientPart.FETCH):
        lines += ["", f"## {part.value}", "", *_with_unused([row for row in consumer if row.part is part])]
    lines += ["", f"## {ClientPart.PRODUCER.value}", "", *_with_unused(own[ProducerSettings])]
    lines += ["", "## The admin, and every command", "", *_with_unused(own[AdminSettings])]
    lines += ["", "## What the Java clients have and we have not", "", "Refused, with what to do instead."]
    lines += ["", "| names | instead |", "|---|---|"]
    lines += [f"| {', '.join(f'`{name}`' for name in names)} | {instead} |" for instead, names in REFUSED.items()]
    return "\n".join(lines) + "\n"


ABOUT_METRICS = """# Logs and metrics of the clients

Made from `coterie.client.event_log` and `coterie.client.metrics` by `make docs`. How to see them is in \
[member.md](member.md#what-it-says-and-measures) and [producer.md](producer.md#what-it-says-and-measures).

## Lines

The loggers are `coterie.consumer`, `coterie.producer` and `coterie.admin`; a Spark query that is a member writes to \
`coterie.spark`. A line begins with `[group/client.id]`, and its event is `record.event`. What is in records and \
settings is in no line.
"""
ABOUT_METRIC_NAMES = """
## Metrics

`metrics()` returns `{group: {name: value}}`, under the names of the Java clients. A value is a number, or None: what \
nobody has measured yet is None, never 0. Averages, maxima and rates are those of the last `metrics.num.samples` \
samples of `metrics.sample.window.ms`; a total counts from the client's start. Times are in milliseconds, where the \
name does not say otherwise. The tag `client-id` is left out: a client knows only itself.
"""


def metrics() -> str:
    """The table of log lines, then one table a group of metrics."""
    lines = [ABOUT_METRICS, "| level | when | event |", "|---|---|---|"]
    for event, line in LINES.items():
        level = logging.getLevelName(line.level) if isinstance(line.level, int) else "WARNING"
        lines.append(f"| {level} | {line.when} | `{event.__name__}` |")
    lines.append(ABOUT_METRIC_NAMES)
    for rows in (CONSUMER_ROWS, PRODUCER_ROWS, ADMIN_ROWS):
        for group, its in rows.items():
            lines += [f"### {group}", "", "| name | |", "|---|---|"]
            lines += [*(f"| `{row.name}` | {row.help} |" for row in its), ""]
    lines += [
        "Each partition that is read has its own group, `consumer-fetch-manager-metrics,topic=orders,partition=0`:",
        "",
        "| name | |",
        "|---|---|",
        *(f"| `{name}` | {help_} |" for name, help_ in PARTITION_ROWS.items()),
    ]
    return "\n".join(lines) + "\n"


def _with_unused(rows: list[Setting]) -> list[str]:
    lines = _settings_table([row for row in rows if not row.unused])
    unused = [row for row in rows if row.unused]
    if unused:
        lines += ["", "Accepted, and without effect:", "", "| name | default | why |", "|---|---|---|"]
        lines += [f"| `{row.name}` | {_default(row)} | {row.unused} |" for row in unused]
    return lines


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


def member() -> str:
    """The hand-written page, with what comes from the code put in again between its markers."""
    parts = {"coterie.client.member.states": _life()}
    for name in ("ten_lines.py", "own_driver.py"):
        example = (HERE.parent / "examples" / name).read_text()
        parts[f"examples/{name}"] = f"```python\n{example}```"
    text = (HERE / "member.md").read_text()
    for source, made in parts.items():
        begin = f"<!-- made by `make docs` from {source} -->\n"
        before, _, rest = text.partition(begin)
        _, end, after = rest.partition("<!-- end -->")
        text = f"{before}{begin}{made}\n{end}{after}"
    return text


ABOUT_ERRORS = """What it does about an error, by request; every cell is played by \
`tests/client/member/test_states.py`. NETWORK_EXCEPTION and REQUEST_TIMED_OUT also stand for a connection that was \
lost and an answer that never came."""


def _life() -> str:
    stages = member_states.Stage
    apis = member_states.Api
    codes = sorted({code for table in member_states.ON_ERROR.values() for code in table}, key=lambda code: code.name)
    lines = [
        "| stage | the member | what may follow |",
        "|---|---|---|",
        *(
            f"| {stage} | {doing} | {', '.join(one for one in stages if one in member_states.NEXT[stage])} |"
            for stage, doing in member_states.DOING.items()
        ),
        "",
        ABOUT_ERRORS,
        "",
        "| | " + " | ".join(apis) + " |",
        "|---" * (len(apis) + 1) + "|",
        *(
            f"| {code.name} | " + " | ".join(_do(member_states.on_error(api, code)) for api in apis) + " |"
            for code in codes
        ),
        "| any other | " + " | ".join(_do(member_states.OTHERWISE[api]) for api in apis) + " |",
        "",
        "| word | meaning |",
        "|---|---|",
        *(f"| {_do(what)} | {what.value} |" for what in member_states.Do),
    ]
    return "\n".join(lines)


def _do(what: member_states.Do) -> str:
    return what.name.lower().replace("_", " ")


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


def _allowed(allowed: str) -> str:
    return "" if allowed.startswith("any text") else f"Allowed: {allowed}."


def spark_options() -> str:
    lines = [
        "# Options of the Spark source and sink",
        "",
        "Made from `coterie.spark.options` by `make docs`; what they are for is in [spark.md](spark.md). The case of a",
        "name does not count. `kafka.bootstrap.servers` is always needed, and all other `kafka.*` are settings of the",
        "[client](client-settings.md).",
        "",
        "| option | for | default | |",
        "|---|---|---|---|",
    ]
    for option in OPTIONS:
        uses = ", ".join(use.value for use in Use if use in option.uses)
        default = "" if option.default is None else f"`{str(option.default).lower()}`"
        doc = f"{option.doc} *Accepted, without effect: {option.unused}.*" if option.unused else option.doc
        lines.append(f"| `{option.name}` | {uses} | {default} | {doc} {_allowed(option.kind.allowed)} |")
    return "\n".join(lines) + "\n"


ABOUT_TABLES = """# Tables of the pipeline

Made from `coterie.spark.schemas` by `make docs`; [pipeline.md](pipeline.md) says how to make them and what they are \
good for. Times (`..._ms`) are milliseconds since 1970.
"""


def tables() -> str:
    lines = [ABOUT_TABLES]
    for table in TABLES_OF_GROUPS.values():
        lines += ["", f"## {table.name}", "", table.doc, "", "| column | type | |", "|---|---|---|"]
        lines += [f"| `{column.name}` | {spark_type(column.type)} | {column.doc} |" for column in table.columns]
    return "\n".join(lines) + "\n"


PAGES: Mapping[str, Callable[[], str]] = {
    "apis.md": apis,
    "cli.md": cli,
    "coverage.md": coverage,
    "facts.md": facts_page,
    "states.md": states,
    "states.svg": state_picture,
    "settings.md": settings,
    "client-settings.md": client_settings,
    "metrics.md": metrics,
    "member.md": member,
    "differences.md": differences,
    "spark-options.md": spark_options,
    "tables.md": tables,
    **PICTURES,
    "../src/coterie/client/settings_kwargs.py": settings_kwargs,
}


def main() -> None:
    for name, page in PAGES.items():
        (HERE / name).write_text(page())


if __name__ == "__main__":
    main()

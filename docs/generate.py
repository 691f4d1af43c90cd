"""Prints the pages of docs/ that are made from the code. `make docs` writes them; a test holds them true."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType

from cli_page import cli
from coterie.client.consumer.consumer_log import CONSUMER_LINES
from coterie.client.member import states as member_states
from coterie.client.member.consumer_protocol import states as consumer_member_states
from coterie.client.metrics import ADMIN_ROWS, CONSUMER_ROWS, PARTITION_ROWS, PRODUCER_ROWS
from coterie.client.producer import transaction_states as producer_transaction_states
from coterie.coordinator.classic.states import NEXT, Answer, ClassicGroupState, GroupAction
from coterie.coordinator.classic.states import TABLES as STATE_TABLES
from coterie.coordinator.consumer import states as consumer_states
from coterie.coordinator.transactions import states as transaction_states
from coterie.errors import ErrorCode
from coterie.protocol.apis.__main__ import page as apis
from coterie.settings.broker_settings import BrokerSettings
from coterie.settings.client_settings import AdminSettings, ClientSettings
from coterie.settings.config_def import Setting
from coterie.settings.consumer_settings import ConsumerSettings
from coterie.settings.producer_settings import ProducerSettings
from coterie.settings.security_settings import SECURITY
from coterie.settings.topic_configs import TOPIC_CONFIGS
from coterie.spark.options import OPTIONS, Use
from coterie.spark.pipeline.schemas import TABLES as TABLES_OF_GROUPS
from coterie.spark.pipeline.schemas import spark_type
from coverage_page import coverage
from facts_page import facts_page
from performance_tables import latency_table, readme_table, throughput_table
from pictures import PICTURES
from settings_kwargs import settings_kwargs
from state_picture import state_picture
from test_controls_page import test_controls

HERE = Path(__file__).parent
SHORT = {
    GroupAction.CREATE: "create",
    GroupAction.START_REBALANCE: "**rebalance**",
    GroupAction.PARK: "park",
    GroupAction.REPEAT: "repeat",
    GroupAction.COLLECT: "collect",
    GroupAction.RECHECK: "re-check",
    GroupAction.REPLACE: "replace",
    GroupAction.TAKE: "take",
    GroupAction.TAKE_IF_CONSUMER: "take if consumer",
    GroupAction.NOTHING: "nothing",
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
        *(
            f"| {state} | {', '.join(target for target in ClassicGroupState if target in NEXT[state])} |"
            for state in ClassicGroupState
        ),
        "",
        "## What each state answers",
        "",
        "An error code is the answer.",
        "",
        "| | "
        + " | ".join("Dead, absent" if state is ClassicGroupState.DEAD else state.value for state in ClassicGroupState)
        + " |",
        "|---" * (len(ClassicGroupState) + 1) + "|",
        *(
            f"| {name} | " + " | ".join(_cell(table[state]) for state in ClassicGroupState) + " |"
            for name, table in STATE_TABLES.items()
        ),
        "",
        "| word | meaning |",
        "|---|---|",
        *(f"| {SHORT[what]} | {what.value} |" for what in GroupAction),
        "",
        "## Consumer groups (KIP-848)",
        "",
        "The states of a group follow from its epochs; the rules are in [semantics-kip848.md](semantics-kip848.md).",
        "",
        "| state | when |",
        "|---|---|",
        *(f"| {state.value} | {meaning} |" for state, meaning in consumer_states.MEANING.items()),
        "",
        "What a heartbeat does for its member:",
        "",
        "| state of the member | when | step |",
        "|---|---|---|",
        *(
            f"| {state.name.title().replace('_', '')} | {situation.value} | {step.value} |"
            for state, row in consumer_states.ON_RECONCILE.items()
            for situation, step in row.items()
        ),
        "",
        "What a classic member of a consumer group hears:",
        "",
        "| how it stands | Heartbeat | SyncGroup |",
        "|---|---|---|",
        *(
            f"| {each.value} | {consumer_states.ON_CLASSIC_HEARTBEAT[each].name} "
            f"| {consumer_states.ON_CLASSIC_SYNC[each].name} |"
            for each in consumer_states.ClassicSituation
        ),
        "",
        "## Transactions",
        "",
        "The rules are in [semantics-transactions.md](semantics-transactions.md).",
        "",
        "The producer id is right and the epoch the current one, unless another is named.",
        "",
        "| from | to |",
        "|---|---|",
        *(
            f"| {state} | {', '.join(one for one in transaction_states.TransactionState if one in following)} |"
            for state, following in transaction_states.NEXT.items()
        ),
        "",
        "| | " + " | ".join(_transaction_state(state) for state in transaction_states.TransactionState) + " |",
        "|---" * (len(transaction_states.TransactionState) + 1) + "|",
        *(
            f"| {name} | "
            + " | ".join(_transaction_cell(table[state]) for state in transaction_states.TransactionState)
            + " |"
            for name, table in transaction_states.TABLES.items()
        ),
        "",
        "| word | meaning |",
        "|---|---|",
        *(f"| {_transaction_cell(what)} | {what.value} |" for what in transaction_states.TransactionAction),
    ]
    return "\n".join(lines) + "\n"


def _transaction_state(state: transaction_states.TransactionState) -> str:
    return "absent" if state is transaction_states.DEAD else state.value


def _transaction_cell(what: transaction_states.Answer) -> str:
    return what.name if isinstance(what, ErrorCode) else what.name.lower().replace("_", " ")


def _cell(what: Answer) -> str:
    if isinstance(what, ErrorCode):
        return what.name
    return SHORT[what]


ABOUT_SETTINGS = """# Broker settings

This page is generated by `make docs`. Names, types and defaults are those of Apache Kafka 4.3.1; settings that Kafka \
does not have begin with `coterie.`.

They are read from a properties file (`--config`), then from the environment, then from `--set name=value`; the last \
one wins. Environment variables have the names of Kafka's Docker image, `KAFKA_NUM_PARTITIONS`, or \
`COTERIE_NUM_PARTITIONS`, which takes precedence; `COTERIE_FLUSH` is `coterie.flush`. In Python: \
`Broker(settings={"num.partitions": 4})`. An unknown name or an invalid value is an error, which names the nearest \
setting or the allowed values.
"""


def settings() -> str:
    """One table a part, then the topics' own, then what is ignored."""
    lines = [ABOUT_SETTINGS.rstrip()]
    for section, rows in _by_section(BrokerSettings.rows().values()).items():
        lines += ["", f"## {section}", "", *_with_unused(rows)]
    lines += [
        "",
        "## Topic configs",
        "",
        "They are set by CreateTopics, AlterConfigs and IncrementalAlterConfigs.",
        "",
        "| name | allowed | default from | |",
        "|---|---|---|---|",
        *(
            f"| `{config.name}` | {config.kind.allowed} | {_names(config.behind) or '-'} | {config.help} |"
            for config in TOPIC_CONFIGS.values()
        ),
        "",
        "## Settings of Kafka that have no effect",
        "",
        "They are accepted, so that a file or an environment for Kafka works, and named in the log.",
        "",
        "| why | names |",
        "|---|---|",
        *(f"| {row.why} | {_names(row.names)} |" for row in BrokerSettings.unsupported),
    ]
    return "\n".join(lines) + "\n"


ABOUT_CLIENT_SETTINGS = """# Client settings

This page is generated by `make docs`. Names, types and defaults are those of the Java clients of Apache Kafka 4.3.1; \
settings that they do not have begin with `coterie.`.

In Python they are given with dots or with underscores, `Consumer({"group.id": "orders"})` or \
`Consumer(group_id="orders")`; to a command in a properties file (`--config`) or with `--set name=value`, which takes \
precedence. An unknown name or an invalid value is an error, which names the nearest setting or the allowed values.

A value may be a reference, so that a secret need not be written down: `${env:NAME}` is a variable of the environment, \
`${file:PATH}` is what a file has, `${file:PATH:KEY}` is a value of a properties file. [Security](security.md) has \
recipes for services.
"""


def client_settings() -> str:
    """What all clients have, then what each has besides or otherwise, then what is refused."""
    common = ClientSettings.rows()
    lines = [ABOUT_CLIENT_SETTINGS.rstrip()]
    security_last = sorted(common.values(), key=lambda row: row.section == SECURITY)
    for section, rows in _by_section(security_last).items():
        lines += ["", f"## {section}", "", *_with_unused(rows)]
    for table in (ConsumerSettings, ProducerSettings, AdminSettings):
        own = [row for row in table.rows().values() if common.get(row.name) != row]
        sections = _by_section(row for row in own if row.name not in common)
        for section, rows in sections.items():
            lines += ["", f"## {section}", "", *_with_unused(rows)]
        other = [row for row in own if row.name in common]
        if other:
            lines += ["", "Another default than other clients have:", "", "| name | default |", "|---|---|"]
            lines += [f"| `{row.name}` | {_default(row)} |" for row in other]
    lines += ["", "## Settings of the Java clients that are not supported", "", "They are errors."]
    lines += ["", "| names | instead |", "|---|---|"]
    lines += [f"| {_names(row.names)} | {row.why} |" for row in ClientSettings.unsupported if row.is_refused]
    lines += ["", "These are accepted, but without effect:", "", "| names | why |", "|---|---|"]
    lines += [f"| {_names(row.names)} | {row.why} |" for row in ClientSettings.unsupported if not row.is_refused]
    return "\n".join(lines) + "\n"


ABOUT_METRICS = """# Logs and metrics of the clients

This page is generated by `make docs`. Examples are in the [consumer guide](member.md#logging-and-metrics) and the \
[producer guide](producer.md#logging-and-metrics).

## Log lines

The loggers are `coterie.consumer`, `coterie.producer` and `coterie.admin`; a Spark query that is a member writes to \
`coterie.spark`. A line begins with `[group/client.id]`, and its event is `record.event`. Lines never contain the \
contents of records or settings.
"""
ABOUT_METRIC_NAMES = """
## Metrics

`metrics()` returns `{group: {name: value}}`, with the names of the Java clients. A value is a number, or None if it \
was not measured yet. Averages, maxima and rates are those of the last `metrics.num.samples` samples of \
`metrics.sample.window.ms`; totals count from the client's start. Times are in milliseconds, unless the name says \
otherwise. The tag `client-id` is left out.
"""


def metrics() -> str:
    """The table of log lines, then one table a group of metrics."""
    lines = [ABOUT_METRICS, "| level | when | event |", "|---|---|---|"]
    for event, line in CONSUMER_LINES.items():
        level = logging.getLevelName(line.level) if isinstance(line.level, int) else "WARNING"
        lines.append(f"| {level} | {line.when} | `{event.__name__}` |")
    lines.append(ABOUT_METRIC_NAMES)
    for rows in (CONSUMER_ROWS, PRODUCER_ROWS, ADMIN_ROWS):
        for group, its in rows.items():
            lines += [f"### {group}", "", "| name | |", "|---|---|"]
            lines += [*(f"| `{row.name}` | {row.help} |" for row in its), ""]
    lines += [
        "Each partition has its own group, `consumer-fetch-manager-metrics,topic=orders,partition=0`:",
        "",
        "| name | |",
        "|---|---|",
        *(f"| `{name}` | {help_} |" for name, help_ in PARTITION_ROWS.items()),
    ]
    return "\n".join(lines) + "\n"


def _by_section(rows: Iterable[Setting]) -> dict[str, list[Setting]]:
    sections: dict[str, list[Setting]] = {}
    for row in rows:
        sections.setdefault(row.section, []).append(row)
    return sections


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _with_unused(rows: list[Setting]) -> list[str]:
    lines = _settings_table([row for row in rows if not row.unused])
    unused = [row for row in rows if row.unused]
    if unused:
        lines += ["", "Accepted, but without effect:", "", "| name | default | why |", "|---|---|---|"]
        lines += [f"| `{row.name}` | {_default(row)} | {row.unused} |" for row in unused]
    return lines


def _settings_table(rows: list[Setting]) -> list[str]:
    return [
        "| name | default | allowed | |",
        "|---|---|---|---|",
        *(
            f"| `{row.name}` | {_default(row)} | {row.kind.allowed} | {row.doc}{_other_names(row)}"
            f"{row.why and f' Why: {row.why}.'} |"
            for row in rows
        ),
    ]


def _other_names(row: Setting) -> str:
    return f" Also called {_names(row.also)}." if row.also else ""


def _default(row: Setting) -> str:
    text = row.text(row.default)
    return f"`{text}`" if text else "-"


def member() -> str:
    """The hand-written page, with what comes from the code put in again between its markers."""
    parts = {
        "coterie.client.member.states": _life(member_states),
        "coterie.client.member.consumer_protocol.states": _life(consumer_member_states),
    }
    return _filled("member.md", {**parts, **_examples("ten_lines.py", "own_driver.py")})


def transactions() -> str:
    """The hand-written page, with the same."""
    parts = {"coterie.client.producer.transaction_states": _transaction_states()}
    for source, block in _examples("read_process_write.py").items():
        parts[source] = f"<!-- not run: it goes on for ever -->\n{block}"
    return _filled("transactions.md", parts)


def readme() -> str:
    """The hand-written page, with the table of measurements."""
    return _filled("../README.md", {"bench/results/": readme_table()})


def performance() -> str:
    parts = {"bench/results/, throughput": throughput_table(), "bench/results/, latencies": latency_table()}
    return _filled("performance.md", parts)


def _transaction_states() -> str:
    tables = producer_transaction_states
    apis, states_ = list(tables.TransactionApi), list(tables.TransactionState)
    codes = sorted({code for table in tables.ON_ERROR.values() for code in table}, key=lambda code: code.name)
    classes = {
        code: [tables.ON_ERROR[api].get(code, tables.UNLISTED[api]).name.lower() for api in apis] for code in codes
    }
    lines = [
        "| state | the producer | calls | next states |",
        "|---|---|---|---|",
        *(
            f"| {state} | {doing} "
            f"| {_names(call for call in tables.TransactionCall if state in tables.ALLOWED[call]) or '-'} "
            f"| {', '.join(one for one in states_ if one in tables.NEXT[state]) or '-'} |"
            for state, doing in tables.DOING.items()
        ),
        "",
        "| | " + " | ".join(apis) + " |",
        "|---" * (len(apis) + 1) + "|",
        *(f"| {code.name} | " + " | ".join(row) + " |" for code, row in classes.items()),
        "| any other | " + " | ".join(tables.UNLISTED[api].name.lower() for api in apis) + " |",
        "",
        "| class | meaning |",
        "|---|---|",
        *(f"| {kind.name.lower()} | {kind.value} |" for kind in tables.ErrorClass),
    ]
    return "\n".join(lines)


def _examples(*names: str) -> dict[str, str]:
    texts = {name: (HERE.parent / "examples" / name).read_text() for name in names}
    return {f"examples/{name}": f"```python\n{text}```" for name, text in texts.items()}


def _filled(name: str, parts: Mapping[str, str]) -> str:
    """Return a hand-written page with its generated parts."""
    text = (HERE / name).read_text()
    for source, made in parts.items():
        begin = f"<!-- made by `make docs` from {source} -->\n"
        before, _, rest = text.partition(begin)
        _, end, after = rest.partition("<!-- end -->")
        if not end:
            raise ValueError(f"{name} has no place for what is made from {source}: {begin.strip()} ... <!-- end -->")
        text = f"{before}{begin}{made}\n{end}{after}"
    return text


ABOUT_ERRORS = """The reaction to each error, by request. NETWORK_EXCEPTION and REQUEST_TIMED_OUT also stand for a \
lost connection and a missing answer."""


def _life(tables: ModuleType) -> str:
    """Return the states of a member and its reactions to errors."""
    stages, apis = list(tables.NEXT), list(tables.OTHERWISE)
    codes = sorted({code for table in tables.ON_ERROR.values() for code in table}, key=lambda code: code.name)
    reactions = {code: [tables.on_error(api, code) for api in apis] for code in codes}
    used = {what for row in (*reactions.values(), tables.OTHERWISE.values()) for what in row}
    lines = [
        "| state | the member | next states |",
        "|---|---|---|",
        *(
            f"| {stage} | {doing} | {', '.join(one for one in stages if one in tables.NEXT[stage])} |"
            for stage, doing in tables.DOING.items()
        ),
        "",
        ABOUT_ERRORS,
        "",
        "| | " + " | ".join(apis) + " |",
        "|---" * (len(apis) + 1) + "|",
        *(f"| {code.name} | " + " | ".join(map(_do, row)) + " |" for code, row in reactions.items()),
        "| any other | " + " | ".join(map(_do, tables.OTHERWISE.values())) + " |",
        "",
        "| word | meaning |",
        "|---|---|",
        *(f"| {_do(what)} | {what.value} |" for what in member_states.ErrorAction if what in used),
    ]
    return "\n".join(lines)


def _do(what: member_states.ErrorAction) -> str:
    return what.name.lower().replace("_", " ")


ABOUT_DIFFERENCES = """# Intentional differences from Kafka 4.3.1

This page is generated by `make docs`. `make conformance` sends the same requests to Apache Kafka 4.3.1 and to \
Coterie, in some thousand cases. Everything that is not listed here must be equal, down to the order of members \
in an answer. `make test` compares with recorded answers of Kafka.

## In the recorded cases
"""


def differences() -> str:
    rows = tomllib.loads((HERE.parent / "tests" / "conformance" / "differences.toml").read_text())
    elsewhere = ["", "## Elsewhere", "", "Each has its own test.", ""]
    return "\n".join(
        [
            ABOUT_DIFFERENCES,
            *_differences_table([*rows["recorded"], *rows["consumer_group"]]),
            *elsewhere,
            *_differences_table(rows["elsewhere"]),
            "",
        ]
    )


def _differences_table(rows: list[dict[str, str]]) -> list[str]:
    columns = ("what", "kafka", "ours", "why")
    lines = ["| case | Kafka | Coterie | why |", "|---|---|---|---|"]
    told = ("| " + " | ".join(row[column] for column in columns) + " |" for row in rows)
    return [*lines, *dict.fromkeys(told)]  # rows may differ only in the cases that they explain


def _allowed(allowed: str) -> str:
    return "" if allowed.startswith("any text") else f"Allowed: {allowed}."


def spark_options() -> str:
    lines = [
        "# Options of the Spark source and sink",
        "",
        "This page is generated by `make docs`; [spark.md](spark.md) explains how to use the options. Names are",
        "case-insensitive. `kafka.bootstrap.servers` is required; all other `kafka.*` are settings of the",
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

This page is generated from `coterie.spark.pipeline.schemas` by `make docs`. [pipeline.md](pipeline.md) explains how \
to make the tables and how to use them. Times (`..._ms`) are milliseconds since 1970.
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
    "transactions.md": transactions,
    "differences.md": differences,
    "spark-options.md": spark_options,
    "tables.md": tables,
    "test-controls.md": test_controls,
    "performance.md": performance,
    "../README.md": readme,
    **PICTURES,
    "../src/coterie/client/settings_kwargs.py": settings_kwargs,
}


def main() -> None:
    for name, page in PAGES.items():
        (HERE / name).write_text(page())


if __name__ == "__main__":
    main()

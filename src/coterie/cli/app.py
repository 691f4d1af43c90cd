"""The `coterie` command: its commands and their options. The work of each is in its own file, loaded when it runs."""

from __future__ import annotations

from copy import copy
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from typer.main import get_command_name

import coterie
from coterie.cli.acls_app import acls_app
from coterie.cli.diagnosis_app import explain, watch
from coterie.cli.front_page import FrontPage
from coterie.cli.groups_app import groups_app
from coterie.cli.migrate_app import migrate
from coterie.cli.options import HOST, PORT, Bootstrap, Config, Sets, use_profile
from coterie.cli.pipeline_app import pipeline_app
from coterie.cli.plan_app import plan_app
from coterie.cli.topics_app import topics_app
from coterie.cli.transactions_app import transactions_app
from coterie.cli.web_command import (
    ServeMetricsCompat,
    ServeTraces,
    ServeWebAddress,
    ServeWebhook,
    web_command,
    web_options,
)

app = typer.Typer(
    cls=FrontPage,
    no_args_is_help=True,
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain text wraps and can be piped; boxes make a help page half as long again, and slower
)
app.add_typer(topics_app, name="topics")
app.add_typer(groups_app, name="groups")
app.add_typer(transactions_app, name="transactions")
app.add_typer(acls_app, name="acls")
app.add_typer(pipeline_app, name="pipeline")
app.add_typer(plan_app, name="plan")
app.command("web")(web_command)
app.command()(watch)
app.command()(explain)
app.command()(migrate)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"coterie {coterie.__version__} (record batches: {_how_batches_are_read()})")
        raise typer.Exit


def _how_batches_are_read() -> str:
    from coterie.protocol.records import IS_COMPILED

    if IS_COMPILED:
        return "compiled"
    was_built = find_spec("coterie.protocol._fast_records") is not None
    why = "as COTERIE_PURE asks" if was_built else "slower: the extension was not compiled at installation"
    return f"pure Python, {why}"


@app.callback()
def coterie_command(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
    profile: Annotated[
        str | None,
        typer.Option("--profile", metavar="NAME", envvar="COTERIE_PROFILE", help="Client settings of a cluster."),
    ] = None,
) -> None:
    """Kafka consumer groups in Python. Run 'coterie COMMAND --help' for details."""
    if profile is not None:
        use_profile(profile)


class FlushChoice(StrEnum):
    sync = "sync"
    os = "os"


class LogChoice(StrEnum):
    text = "text"
    all = "all"
    json = "json"


class LogFormatChoice(StrEnum):
    text = "text"
    json = "json"


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default=HOST)] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port; 0: a free one.", show_default=PORT)] = None,
    advertise: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Address advertised to clients, if different."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Data directory.", show_default="coterie-data")
    ] = None,
    flush: Annotated[
        FlushChoice | None,
        typer.Option(
            help="Answer a write after fsync (sync), or before it, as Kafka does (os).",
            show_default="sync",
        ),
    ] = None,
    memory: Annotated[bool, typer.Option("--memory", help="Keep data in memory only.")] = False,
    nodes: Annotated[int, typer.Option(min=1, max=100, help="Number of broker nodes.")] = 1,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A broker setting, by its Kafka name.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", exists=True, dir_okay=False, help="Properties file with settings.")
    ] = None,
    secure: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="TLS and passwords; DIR gets a test CA and a user.",
        ),
    ] = None,
    test_controls: Annotated[
        bool,
        typer.Option("--test-controls", help="Controls for tests, over HTTP; data is in memory."),
    ] = False,
    controls: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Address of controls.",
            show_default="127.0.0.1:9099",
        ),
    ] = None,
    log: Annotated[
        LogChoice,
        typer.Option(help="Log group events (text), commits and rejoins too (all), or all as JSON."),
    ] = LogChoice.text,
    log_format: Annotated[
        LogFormatChoice | None,
        typer.Option("--log-format", help="Write log lines as logfmt (text) or JSON."),
    ] = None,
    web: Annotated[bool, typer.Option("--web", help="Show the groups on a page; options in docs/web.md.")] = False,
    web_address: ServeWebAddress = None,
    metrics_compat: ServeMetricsCompat = None,
    webhook: ServeWebhook = None,
    traces: ServeTraces = False,
) -> None:
    """Run a broker that Kafka clients connect to.

    When it accepts connections it prints: ready HOST:PORT. Settings are read from --config, then the environment
    (COTERIE_GROUP_MAX_SIZE or KAFKA_GROUP_MAX_SIZE for group.max.size), then --set; the last one wins. SIGTERM or
    Ctrl-C shuts down cleanly, a second one at once.

    With --nodes 3 clients see three brokers, with ports in a row. There is one copy of each log: more nodes add neither
    safety nor speed.

    With --secure DIR clients must use TLS and log in. DIR has their settings, with the password. For certificates and
    users of your own, give Kafka's settings (docs/security.md).

    With --test-controls the line also has: controls http://HOST:PORT. Tests in any language control the broker there
    (docs/testing-recipes.md).

    Try it: coterie serve --memory --port 0
    """
    from coterie.cli.serve import serve as run

    run(
        host=host,
        port=port,
        advertise=advertise,
        data=data,
        flush=flush.value if flush else None,
        memory=memory,
        nodes=nodes,
        sets=set_ or [],
        config=config,
        log=log.value,
        log_format=log_format.value if log_format else None,
        secure=secure,
        test_controls=test_controls,
        controls=controls,
        web=web_options(web_address, metrics_compat, webhook, traces=traces, wanted=web),
    )


@app.command()
def repair(
    data: Annotated[Path, typer.Argument(metavar="DIR", help="Data directory of a stopped broker.")],
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Repair it. Without this option nothing is changed.")
    ] = False,
    cluster_id: Annotated[
        str | None, typer.Option(help="Cluster id, if the directory has lost its own.", show_default="a new one")
    ] = None,
    node_id: Annotated[
        int | None, typer.Option(min=0, help="Node id, if the directory has lost its own.", show_default="1")
    ] = None,
) -> None:
    """Check a data directory for damage, and repair it.

    A broker refuses to start if data that was already on disk is missing or corrupt. This command reads the whole
    directory and lists the damage and the lost offsets. The exit status is 1 if there is damage.

    With --accept-loss it copies the damaged files to DIR/damaged-TIME, writes a report of what was lost, and keeps the
    rest. The end offset of a log stays the same and no offset is reused: consumers skip the lost ones.

    Try it: coterie repair coterie-data
    """
    from coterie.cli.repair import repair as run

    run(data, accept_loss=accept_loss, cluster_id=cluster_id, node_id=node_id)


@app.command()
def assign(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME...]", help="range, roundrobin, sticky, cooperative-sticky, or your own."),
    ] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Show several assignors side by side.")] = False,
    case: Annotated[
        str | None, typer.Option("--case", help="With --compare: id of the group to use (default: the first).")
    ] = None,
    leave: Annotated[
        list[str] | None, typer.Option("--leave", help="With --compare: a member that leaves. Repeatable.")
    ] = None,
    join: Annotated[
        list[str] | None,
        typer.Option("--join", help="With --compare: a member that joins: MEMBER or MEMBER=TOPIC,TOPIC. Repeatable."),
    ] = None,
    grow: Annotated[
        list[str] | None,
        typer.Option("--grow", help="With --compare: TOPIC=PARTITIONS, its new number of partitions. Repeatable."),
    ] = None,
) -> None:
    """Show what an assignor would do with a group, or compare assignors. Needs no broker.

    Reads groups from standard input, one JSON object per line:

    {"id": "a", "topics": {"t0": 4}, "members": [{"id": "m1", "topics": ["t0"]}, {"id": "m2", "topics": ["t0"]}]}

    and prints one assignment per line:

    {"id": "a", "assignment": {"m1": [["t0", [0, 1]]], "m2": [["t0", [2, 3]]]}}

    A member may also have instance, rack, owned (in the form of an
    assignment), generation and user_data_hex; a group may have racks (topic
    to a list of racks for each partition). For an invalid line it prints
    {"id", "error"}; the exit status is then 1.

    --compare shows load, balance, moves and rack matches side by side, for the
    group as it is and after all given changes in one rebalance. If no member
    owns anything yet, each assignor starts from its own assignment.

    Try it: coterie assign sticky < groups.jsonl

    Try it: coterie assign --compare --leave m1 --join m9 --join m10=t0,t1 --grow t0=12 < group.jsonl
    """
    from coterie.cli.assign import assign as run

    run(names or [], compare=compare, case_id=case, leaving=leave or [], joining=join or [], growing=grow or [])


class ProtocolChoice(StrEnum):
    classic = "classic"
    consumer = "consumer"


@app.command()
def consume(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="One or more topics.")],
    group: Annotated[str | None, typer.Option("--group", "-g", help="Join this group, and commit offsets.")] = None,
    protocol: Annotated[
        ProtocolChoice | None,
        typer.Option("--protocol", help="The group's protocol: classic (default), or consumer (KIP-848)."),
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            "--from", "-o", metavar="WHERE", help="Start at beginning, end, OFFSET, -N (the last N), or @TIME."
        ),
    ] = "beginning",
    count: Annotated[int | None, typer.Option("--count", "-c", min=1, help="Exit after this many records.")] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit-at-end", "-e", help="Exit at the end of the partitions.")
    ] = False,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Read only this partition. Repeatable.")
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format", "-f", help=r"Print %v value, %k key, %o offset, %p partition, %t topic, %T time, %h headers."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    key_delimiter: Annotated[
        str | None,
        typer.Option(
            "--key-delimiter", "-K", metavar="TEXT", help="Print the key, followed by TEXT, before the value."
        ),
    ] = None,
    null: Annotated[bool, typer.Option("--null", "-Z", help="Print NULL for a null key or value.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing to stderr.")] = False,
    bootstrap: Bootstrap = None,
    config: Config = None,
    set_: Sets = None,
) -> None:
    r"""Print the records of topics, with or without a consumer group.

    Without --group it reads all partitions, or those given with --partition, and commits nothing. With --group the
    group assigns the partitions; on Ctrl-C it commits what it has printed and leaves the group. Events such as
    assigned partitions are written to stderr.

    Try it: coterie consume orders -e -f '%p %o %k %v\n'

    Try it: coterie consume orders payments --group audit --json

    Try it: coterie consume orders --group audit --protocol consumer
    """
    from coterie.cli.consume import ConsumeOptions
    from coterie.cli.consume import consume as run

    run(
        ConsumeOptions(
            topics=topics,
            bootstrap=bootstrap,
            group=group,
            protocol=protocol,
            start=start,
            count=count,
            exit_at_end=exit_at_end,
            partitions=partition or (),
            format=format_,
            json=json,
            key_delimiter=key_delimiter,
            null=null,
            quiet=quiet,
            config=config,
            sets=set_ or (),
        )
    )


class CompressionChoice(StrEnum):
    none = "none"
    gzip = "gzip"
    snappy = "snappy"
    lz4 = "lz4"
    zstd = "zstd"


class AcksChoice(StrEnum):
    all = "all"
    leader = "1"
    nobody = "0"


@app.command()
def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic to write to.")],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE...]", exists=True, dir_okay=False, help="Files to read (default: standard input)."
        ),
    ] = None,
    key_delimiter: Annotated[
        str | None,
        typer.Option("--key-delimiter", "-K", metavar="TEXT", help="Split each line at TEXT into key and value."),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="Add a header to every record. Repeatable."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Read one JSON object per line.")] = False,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Target partition.", show_default="by key hash")
    ] = None,
    compression: Annotated[
        CompressionChoice | None,
        typer.Option("--compression", "-z", help="Batch compression codec.", show_default="none"),
    ] = None,
    acks: Annotated[AcksChoice | None, typer.Option(help="Required acknowledgements.", show_default="all")] = None,
    count: Annotated[int | None, typer.Option("--count", "-c", min=0, help="Send only this many records.")] = None,
    null: Annotated[bool, typer.Option("--null", "-Z", help="Send an empty value as null (a tombstone).")] = False,
    bootstrap: Bootstrap = None,
    config: Config = None,
    set_: Sets = None,
) -> None:
    """Send each line as a record, delivered once and in order.

    With --json each line is an object:

    {"key": "k", "value": "text", "headers": {"a": "b"}, "partition": 0, "timestamp": 1700000000000}

    All fields are optional. A value that is not a string is sent as JSON; {"base64": "AAE="} is bytes. "topic" and
    "offset", which consume --json prints, are ignored.

    Progress and a summary go to stderr. The exit status is 1 if a record was not delivered. Ctrl-C delivers what was
    read; a second Ctrl-C exits immediately.

    Try it: seq 1000 | coterie produce numbers -z zstd
    """
    from coterie.cli.produce import produce as run

    run(
        topic,
        files or [],
        bootstrap=bootstrap,
        key_delimiter=key_delimiter,
        headers=header or [],
        as_json=json,
        partition=partition,
        compression=compression.value if compression else None,
        acks=acks.value if acks else None,
        count=count,
        empty_is_null=null,
        config=config,
        sets=set_ or [],
    )


@app.command()
def demo(
    seconds: Annotated[float, typer.Option(min=0, help="Approximate length of the demo; Spark adds to it.")] = 60,
    members: Annotated[int, typer.Option(min=2, max=20, help="Members at the start.")] = 2,
    partitions: Annotated[int, typer.Option(min=2, max=200, help="Partitions of the topic at the start.")] = 8,
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="Include a Spark query as a member.")] = True,
    keep: Annotated[bool, typer.Option("--keep", help="Keep everything running until Ctrl-C.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory for data, logs and report; must be new.")
    ] = None,
) -> None:
    """Watch a group: members join, leave, crash and are too slow; partitions are added; two rolling deploys.

    Runs a broker, a stream of orders, Python consumers and a Spark query in one group. At the end it prints every
    rebalance with its cause and its cost, writes a report with a picture, and checks whether every guarantee held (exit
    status 1 if not).

    Try it: coterie demo --no-spark --seconds 20
    """
    from coterie.cli.demo.demo import demo as run

    run(seconds=seconds, members=members, partitions=partitions, with_spark=spark, keep=keep, out=out)


@app.command()
def sim(
    seed: Annotated[int | None, typer.Option(min=0, help="Seed to run.", show_default="0")] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="FIRST-LAST", help="Range or list of seeds: 0-9999, or 1,5,20-29.")
    ] = None,
    workload: Annotated[
        str | None, typer.Option(help="Workload: steady, rolling-deploy, ...", show_default="by the seed")
    ] = None,
    hours: Annotated[
        float | None, typer.Option(min=0, help="Simulated time per seed.", show_default="ten minutes")
    ] = None,
    members: Annotated[int | None, typer.Option(min=1, help="Members of a group.", show_default="by the seed")] = None,
    faults: Annotated[
        int | None, typer.Option(min=0, help="Number of random faults.", show_default="by the seed")
    ] = None,
    nodes: Annotated[int | None, typer.Option(min=1, max=9, help="Broker nodes.", show_default="by the seed")] = None,
    drop: Annotated[
        str | None, typer.Option(metavar="NUMBERS", help="Steps to leave out (printed with a shrunk failure).")
    ] = None,
    story: Annotated[bool, typer.Option("--story", help="Print what happened, on one screen.")] = False,
    grid: Annotated[bool, typer.Option("--grid", help="Print every step, as a table.")] = False,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page: the summary, and who owned which partition.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes.")] = 1,
    shrink: Annotated[
        bool, typer.Option("--shrink/--no-shrink", help="Shrink the first failure to fewer steps.")
    ] = True,
) -> None:
    """Simulate groups with random faults, reproducible from a seed.

    Runs the real broker, members and producers with a virtual clock. Network, disks and machines fail as drawn from the
    seed. Invariants are checked throughout; then all faults are repaired, and every group must become stable. The same
    seed gives the same run, byte for byte.

    A failure prints its seed, the command that replays it, and the shortest sequence of steps that shows it. The exit
    status is then 1.

    Try it: coterie sim --seed 7 --story

    Try it: coterie sim --seeds 0-99 --workload rolling-deploy
    """
    from coterie.cli.sim import sim as run

    run(
        seeds if seeds is not None else str(seed or 0),
        workload=workload,
        hours=hours,
        members=members,
        faults=faults,
        nodes=nodes,
        drop=drop,
        story=story,
        full_grid=grid,
        page=page,
        jobs=jobs,
        shrinks=shrink,
    )


@app.command("compare-designs")
def compare_designs(
    members: Annotated[
        str, typer.Option(metavar="SIZES", help="Group sizes. Runs with faults use the first.")
    ] = "3,10,30",
    partitions: Annotated[int, typer.Option(min=1, max=1_000, help="Partitions of the topic.")] = 60,
    seed: Annotated[int, typer.Option(min=0, help="Seed for the fault-free scenario.")] = 1,
    seeds: Annotated[str, typer.Option(metavar="FIRST-LAST", help="Seeds for runs with faults: 0-99, or 1,5.")] = "0-9",
    real: Annotated[
        bool, typer.Option("--real", help="Also run real processes and a real ZooKeeper. Needs Java.")
    ] = False,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write pictures (SVG) to this directory.")] = None,
) -> None:
    """Run one scenario on four consumer-group designs and compare the cost.

    Design 1, ZooKeeper watchers: each consumer decides by itself. Design 2, server-side: a coordinator decides. Design
    3, the classic protocol: a member decides; eager and cooperative. Design 4, KIP-848 (group.protocol=consumer): the
    coordinator decides, and each member changes over by itself. In the scenario n consumers share a topic; one joins,
    one crashes, the coordinating broker restarts, and the assignment strategy changes. It is simulated: designs 1 and 2
    with a model of ZooKeeper whose followers lag, designs 3 and 4 with the real broker and members.

    It prints for each change and group size: ZooKeeper notifications and reads, messages between members and
    coordinator, time until all partitions are read again, times with two owners or none, unassigned
    partition-seconds. Then it repeats the scenario with random faults from each seed and shows the first seed in which
    a partition had two owners.

    With --real it also counts on a real ZooKeeper, and runs the designs as processes.

    Try it: coterie compare-designs --members 3,10 --seeds 0-4 --out pictures

    Try it: coterie compare-designs --members 3,6,12 --seeds 0-2 --real
    """
    from coterie.cli.compare_designs import compare_designs as run

    run(members, partitions, seed, seeds, real=real, out=out)


@app.command()
def report(
    data: Annotated[Path, typer.Argument(metavar="DIR", help="Data directory of Coterie or Apache Kafka.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Output file; .svg writes only the picture, - is stdout.",
            show_default="stdout",
        ),
    ] = None,
    group: Annotated[str | None, typer.Option("--group", "-g", help="Only this group.")] = None,
) -> None:
    """Write an HTML report: every rebalance with its cause and cost, and who owned which partition when.

    It only reads the directory; the broker may be running. Coterie's broker records every group event. For Apache
    Kafka's directory the report shows what can be derived from __consumer_offsets, and says so.

    Try it: coterie report coterie-data -o report.html
    """
    from coterie.cli.report import report as run

    run(data, out, group)


def with_only(name: str) -> typer.Typer:
    """Return the app with one of its commands or groups of commands; the whole app if it has none of this name.

    Typer reads the options of all commands before it runs one, which takes a fifth of the time that a broker needs to
    start.
    """
    only = copy(app)
    only.registered_groups = [one for one in app.registered_groups if one.name == name]
    only.registered_commands = [
        one
        for one in app.registered_commands
        if (one.name or get_command_name(one.callback.__name__ if one.callback else "")) == name
    ]
    return only if only.registered_groups or only.registered_commands else app

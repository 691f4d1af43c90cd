"""The `coterie` command: what can be said. Each command's work is in a file of its own, loaded when it is used."""

from __future__ import annotations

from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

import coterie
from coterie.cli.front_page import FrontPage
from coterie.cli.groups_app import groups_app
from coterie.cli.options import Bootstrap, Config, Sets
from coterie.cli.pipeline_app import pipeline_app
from coterie.cli.topics_app import topics_app

__all__ = ["app"]

app = typer.Typer(
    cls=FrontPage,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # text that wraps and can be piped; with boxes a help is half as long again, and later
)
app.add_typer(topics_app, name="topics")
app.add_typer(groups_app, name="groups")
app.add_typer(pipeline_app, name="pipeline")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"coterie {coterie.__version__} (record batches: {_how_batches_are_read()})")
        raise typer.Exit


def _how_batches_are_read() -> str:
    from coterie.protocol.records import IS_COMPILED

    if IS_COMPILED:
        return "compiled"
    was_built = find_spec("coterie.protocol._fast_records") is not None
    return f"pure Python, {'as COTERIE_PURE says' if was_built else 'slower: nothing was compiled at install'}"


@app.callback()
def coterie_command(
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Kafka's consumer groups, whole, in Python. COMMAND --help says more."""


class FlushChoice(StrEnum):
    sync = "sync"
    os = "os"


class LogChoice(StrEnum):
    text = "text"
    all = "all"
    json = "json"


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.", show_default="9092")
    ] = None,
    advertise: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="What clients are told to connect to, if it is another.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the logs are kept.", show_default="coterie-data")
    ] = None,
    flush: Annotated[
        FlushChoice | None,
        typer.Option(
            help="sync: answer when it is on the disk. os: when the system has it, as Kafka does.", show_default="sync"
        ),
    ] = None,
    memory: Annotated[bool, typer.Option("--memory", help="Keep nothing: no data directory at all.")] = False,
    nodes: Annotated[
        int, typer.Option(min=1, max=100, help="So many brokers, as clients see it, in this one process.")
    ] = 1,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting, under Kafka's own name.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", exists=True, dir_okay=False, help="Settings as a properties file.")
    ] = None,
    log: Annotated[
        LogChoice,
        typer.Option(help="On stderr: what happens; all: with every commit and rejoin; json: that, as JSON lines."),
    ] = LogChoice.text,
) -> None:
    """Run a broker that Kafka clients connect to.

    It prints one line on stdout when it listens: ready HOST:PORT, what clients take as bootstrap servers. Settings come
    from the file, then from the environment (COTERIE_GROUP_MAX_SIZE or KAFKA_GROUP_MAX_SIZE for group.max.size), then
    from --set. SIGTERM or Ctrl-C answers whoever waits, closes the logs and exits with 0; a second signal ends at once.

    With --nodes 3 it is a cluster of three to its clients: each node has a port (--port and the two above it), leads a
    third of the partitions and coordinates a third of the groups. There is one copy of each log: it is for trying
    things out, not for more safety or speed.

    Try it: coterie serve --memory --port 0 --set group.initial.rebalance.delay.ms=0
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
    )


@app.command()
def repair(
    data: Annotated[Path, typer.Argument(metavar="DIR", help="The data directory, of a broker that is stopped.")],
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Carry it out. Without it nothing is changed.")
    ] = False,
    cluster_id: Annotated[
        str | None, typer.Option(help="For a directory that has lost its own.", show_default="a new one")
    ] = None,
    node_id: Annotated[int, typer.Option(min=0, help="For a directory that has lost its own.")] = 1,
) -> None:
    """Show what is damaged in a data directory, and save what can be saved.

    A broker does not start on a directory in which something is missing or wrong that was safe on the disk before. This
    reads all of it, and says what is wrong and which offsets are lost. It exits with 1 if something is damaged.

    With --accept-loss it copies the damaged files into DIR/damaged-TIME with a report of what was lost, and saves the
    rest. A log keeps its end, and no offset is given to another record: readers skip those that are lost.

    Try it: coterie repair coterie-data
    """
    from coterie.cli.repair import repair as run

    run(data, accept_loss=accept_loss, cluster_id=cluster_id, node_id=node_id)


@app.command()
def assign(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME...]", help="range, roundrobin, sticky, cooperative-sticky, or yours."),
    ] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Show several assignors side by side.")] = False,
    case: Annotated[str | None, typer.Option("--case", help="With --compare: its id; otherwise the first.")] = None,
    leave: Annotated[list[str] | None, typer.Option("--leave", help="With --compare: this member goes.")] = None,
    join: Annotated[
        list[str] | None, typer.Option("--join", help="With --compare: MEMBER or MEMBER=TOPIC,TOPIC comes.")
    ] = None,
    grow: Annotated[
        list[str] | None, typer.Option("--grow", help="With --compare: TOPIC=PARTITIONS, as many as it then has.")
    ] = None,
) -> None:
    """Assign partitions to members, offline: what would an assignor do, and which one does best?

    Reads groups from standard input, one JSON object a line:

    {"id": "a", "topics": {"t0": 4}, "members": [{"id": "m1", "topics": ["t0"]}, {"id": "m2", "topics": ["t0"]}]}

    and prints what the assignor answers, one line each:

    {"id": "a", "assignment": {"m1": [["t0", [0, 1]]], "m2": [["t0", [2, 3]]]}}

    A member may also have instance, rack, owned (as in the answer above),
    generation and user_data_hex; a group may have racks (topic to a list of
    racks for each partition). A line that cannot be read is answered with
    {"id", "error"}, and the command ends with 1 when all lines are answered.

    --compare shows loads, balance, moves and rack matches side by side.
    What members own is where it starts from; if nobody owns anything, each
    assignor starts from its own answer. The what-ifs then happen together,
    in one rebalance.

    Try it: coterie assign sticky < groups.jsonl

    Try it: coterie assign --compare --leave m1 --join m9 --join m10=t0,t1 --grow t0=12 < group.jsonl
    """
    from coterie.cli.assign import assign as run

    run(names or [], compare=compare, case_id=case, leaving=leave or [], joining=join or [], growing=grow or [])


@app.command()
def consume(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="One or more topics.")],
    group: Annotated[str | None, typer.Option("--group", "-g", help="Be a member of this group, and commit.")] = None,
    start: Annotated[
        str, typer.Option("--from", "-o", metavar="WHERE", help="beginning, end, OFFSET, -N (the last N), or @TIME.")
    ] = "beginning",
    count: Annotated[int | None, typer.Option("--count", "-c", min=1, help="End after so many records.")] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit-at-end", "-e", help="End when all that is there now is read.")
    ] = False,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this one; may be repeated.")
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format", "-f", help=r"%v value, %k key, %o offset, %p partition, %t topic, %T time, %h headers."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    key_delimiter: Annotated[
        str | None, typer.Option("--key-delimiter", "-K", metavar="TEXT", help="Print the key too, and this behind it.")
    ] = None,
    null: Annotated[bool, typer.Option("--null", "-Z", help="Print NULL for a key or value that is null.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing on stderr.")] = False,
    bootstrap: Bootstrap = None,
    config: Config = None,
    set_: Sets = None,
) -> None:
    r"""Read topics of any Kafka cluster to standard output, alone or as a member of a group.

    Without --group all partitions are read, or those named; nothing is committed. With it, the group assigns them, and
    Ctrl-C commits what was printed and leaves. What happens meanwhile is told on stderr.

    Try it: coterie consume orders -e -f '%p %o %k %v\n'

    Try it: coterie consume orders payments --group audit --json
    """
    from coterie.cli.consume import Wanted
    from coterie.cli.consume import consume as run

    run(
        Wanted(
            topics=topics,
            bootstrap=bootstrap,
            group=group,
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
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where to.")],
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE...]", exists=True, dir_okay=False, help="What to send; standard input if none."),
    ] = None,
    key_delimiter: Annotated[
        str | None,
        typer.Option("--key-delimiter", "-K", metavar="TEXT", help="What is before it is the key."),
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header for every record.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Lines are JSON objects, as above.")] = False,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Where in the topic.", show_default="by the key")
    ] = None,
    compression: Annotated[
        CompressionChoice | None, typer.Option("--compression", "-z", help="Of batches.", show_default="none")
    ] = None,
    acks: Annotated[AcksChoice | None, typer.Option(help="Who must have a record.", show_default="all")] = None,
    count: Annotated[int | None, typer.Option("--count", "-c", min=0, help="Stop after so many records.")] = None,
    null: Annotated[bool, typer.Option("--null", "-Z", help="An empty value is null, a tombstone.")] = False,
    bootstrap: Bootstrap = None,
    config: Config = None,
    set_: Sets = None,
) -> None:
    """Send lines to a topic: a record each, delivered once and in order.

    With --json a line is an object:

    {"key": "k", "value": "text", "headers": {"a": "b"}, "partition": 0, "timestamp": 1700000000000}

    of which any part may be missing. A value that is no text is sent as JSON; {"base64": "AAE="} is bytes.
    "topic" and "offset", as consume --json prints them, are passed over: the command says where to.

    Progress and the summary are on stderr. The exit status is 1 if something could not be delivered. Ctrl-C delivers
    what was read; a second one ends at once.

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
    seconds: Annotated[float, typer.Option(min=0, help="How long to watch; half of it goes by between the acts.")] = 60,
    members: Annotated[int, typer.Option(min=2, max=20, help="Members at the beginning.")] = 2,
    partitions: Annotated[int, typer.Option(min=2, max=200, help="Partitions of the topic at the beginning.")] = 8,
    spark: Annotated[bool, typer.Option("--spark/--no-spark", help="A Spark query is one of the members.")] = True,
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything running until Ctrl-C.")] = False,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Where everything is kept; must be new.")] = None,
) -> None:
    """Watch a group live: members join, leave, are killed and dawdle; partitions are added; two rolling deploys.

    A broker, a stream of orders, Python consumers and a Spark query in one group. At the end: every rebalance with its
    cause and its cost, a report with a picture, and whether what is promised was kept. Exit status 1 if it was not.

    Try it: coterie demo --no-spark --seconds 20
    """
    from coterie.cli.demo.demo import demo as run

    run(seconds=seconds, members=members, partitions=partitions, with_spark=spark, keep=keep, out=out)


@app.command()
def sim(
    seed: Annotated[int | None, typer.Option(min=0, help="This one.", show_default="0")] = None,
    seeds: Annotated[str | None, typer.Option(metavar="FIRST-LAST", help="Many: 0-9999, or 1,5,20-29.")] = None,
    workload: Annotated[
        str | None, typer.Option(help="What users do: steady, rolling-deploy, ...", show_default="by the seed")
    ] = None,
    hours: Annotated[
        float | None, typer.Option(min=0, help="Simulated time of a seed.", show_default="ten minutes")
    ] = None,
    members: Annotated[int | None, typer.Option(min=1, help="Members of a group.", show_default="by the seed")] = None,
    faults: Annotated[
        int | None, typer.Option(min=0, help="How much goes wrong by itself.", show_default="by the seed")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option(min=1, max=9, help="Nodes of the broker.", show_default="by the seed")
    ] = None,
    drop: Annotated[
        str | None, typer.Option(metavar="NUMBERS", help="Leave these steps out, as a shrunk failure says.")
    ] = None,
    story: Annotated[bool, typer.Option("--story", help="Print what happened, as a grid.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Seeds at a time, a process each.")] = 1,
    shrink: Annotated[bool, typer.Option("--shrink/--no-shrink", help="Make the first failure small.")] = True,
) -> None:
    """Simulate groups: hours of rebalances from a seed, with everything going wrong that can.

    The shipped broker, members and producers run in a world with virtual time, whose network, disks and machines fail
    as the seed says. Invariants are held to all the while; then all is repaired, and every group must come to rest. The
    same seed gives the same run, byte for byte.

    A failure prints its seed, the command that replays it, and its story, shrunk. The exit status is then 1.

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
        jobs=jobs,
        shrinks=shrink,
    )


@app.command("compare-designs")
def compare_designs(
    members: Annotated[
        str, typer.Option(metavar="SIZES", help="Group sizes: 3,10,30. Seeds with faults are told with the first.")
    ] = "3,10,30",
    partitions: Annotated[int, typer.Option(min=1, max=1_000, help="Of the topic.")] = 60,
    seed: Annotated[int, typer.Option(min=0, help="Of the story without faults.")] = 1,
    seeds: Annotated[str, typer.Option(metavar="FIRST-LAST", help="Of stories with faults: 0-99, or 1,5.")] = "0-9",
    real: Annotated[bool, typer.Option("--real", help="Also as processes, on a real ZooKeeper. Needs Java.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Pictures (SVG): growth, owners, split-brain.")
    ] = None,
) -> None:
    """Tell the three designs of consumer groups the same story: what does each make of it?

    Design 1, ZooKeeper watchers: every consumer watches and decides alone. Design 2, server-side: a coordinator watches
    and decides. Design 3, today's: the coordinator keeps the group, a member decides; eager and cooperative. In the
    story n consumers share a topic, one joins, one dies, the broker that coordinates goes and comes, and at last there
    is a new strategy. It is simulated: designs 1 and 2 on a model of ZooKeeper whose followers lag, design 3 with the
    shipped broker and members.

    Printed by change and group size: notifications and reads of ZooKeeper, messages between members and coordinator,
    the time until everybody reads again, moments with two owners or none, unassigned partition-seconds. Then the
    same story with faults, drawn from each seed: a consumer or a broker is paused, cut off, a follower lags; and the
    first seed in which a partition had two owners.

    With --real the counts are taken on a real ZooKeeper as well, and records are read by real processes: one is killed,
    and a new strategy comes, by a restart of the brokers or of the clients.

    Try it: coterie compare-designs --members 3,10 --seeds 0-4 --out pictures

    Try it: coterie compare-designs --members 4 --partitions 12 --seeds 6

    Try it: coterie compare-designs --members 3,6,12 --seeds 0-2 --real
    """
    from coterie.cli.compare_designs import compare_designs as run

    run(members, partitions, seed, seeds, real=real, out=out)


@app.command()
def report(
    data: Annotated[Path, typer.Argument(metavar="DIR", help="A data directory, of ours or of Apache Kafka's.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Where the page goes; .svg: the picture; -: stdout.",
            show_default="stdout",
        ),
    ] = None,
    group: Annotated[str | None, typer.Option("--group", "-g", help="This group alone.")] = None,
) -> None:
    """Why did my groups rebalance, and what did it cost? A page with every rebalance and who owned what when.

    It reads the directory and changes nothing; the broker may be running. Our broker keeps what happened exactly; from
    Apache Kafka's directory the page has what can be concluded from __consumer_offsets, and says so.

    Try it: coterie report coterie-data -o report.html
    """
    from coterie.cli.report import report as run

    run(data, out, group)

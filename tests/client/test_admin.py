"""The admin against a Coterie broker; how it finds who must answer, and what it does when that one does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

import coterie
from client.admin_stories import STORIES, code_of
from client.peers import HANG_UP, Asked, Peer, Run, answer_to, versions
from coterie.client.admin import LATEST, Admin, AsyncAdmin, ListedOffset, NewTopic, checked
from coterie.client.types import TopicPartition
from coterie.errors import CoterieError, ErrorCode, IllegalArgumentError, KafkaError, RequestTimedOutError
from coterie.protocol.apis import (
    APIS,
    api_versions,
    consumer_group_describe,
    create_topics,
    describe_groups,
    find_coordinator,
    list_groups,
    list_offsets,
    metadata,
)
from coterie.protocol.messages import DescribedGroup, ListedGroup
from coterie.settings.client_settings import AdminSettings
from coterie.settings.config_def import SettingsError

pytestmark = pytest.mark.real_time

Story = Callable[[Admin, str], None]
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture(scope="module")
def broker() -> Iterator[coterie.Broker]:
    with coterie.Broker(settings={"group.initial.rebalance.delay.ms": 0}) as running:
        yield running


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_coterie_broker_is_administered(broker: coterie.Broker, story: Story) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        story(admin, broker.bootstrap_servers)


def test_a_partition_is_reassigned_to_another_node_and_back() -> None:
    with coterie.Broker(nodes=3) as three, Admin(bootstrap_servers=three.bootstrap_servers) as admin:
        checked(admin.create_topics([NewTopic("t", replicas={0: [1]})]))

        def leader() -> int:
            found = checked(admin.describe_topics(["t"]))["t"].partitions[0]
            assert found.leader is not None and found.replicas == (found.leader.id,)
            return found.leader.id

        assert leader() == 1
        for node in (3, 1):
            checked(admin.alter_partition_reassignments({T0: [node]}))
            assert leader() == node
        refused = admin.alter_partition_reassignments({T0: [1, 2]})
        assert code_of(refused[T0]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        refused = admin.alter_partition_reassignments({T0: [1, 2]}, allow_replication_factor_change=False)
        assert code_of(refused[T0]) is ErrorCode.INVALID_REPLICATION_FACTOR
        assert [voter.replica_id for voter in admin.describe_metadata_quorum().voters] == [1, 2, 3]


def test_leaders_are_elected_where_the_broker_does_not_bring_them_back() -> None:
    settings = {"auto.leader.rebalance.enable": False}
    with coterie.Broker(nodes=2, settings=settings) as two, Admin(bootstrap_servers=two.bootstrap_servers) as admin:
        checked(admin.create_topics([NewTopic("t", replicas={0: [1], 1: [2]})]))
        two.stop_node(2)
        two.start_node(2)
        elected = admin.elect_leaders([T0, T1])
        assert code_of(elected[T0]) is ErrorCode.ELECTION_NOT_NEEDED and elected[T1] is None
        led = checked(admin.describe_topics(["t"]))["t"].partitions
        assert [one.leader.id for one in led if one.leader is not None] == [1, 2]


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda admin: admin.alter_partition_reassignments({T0: 1}), "is not a list"),
        (lambda admin: admin.elect_leaders([T0], election_type=7), "is not a type of elections"),
        (lambda admin: admin.alter_replica_log_dirs({("t", 0): "/data"}), "is not a replica"),
        (lambda admin: admin.alter_replica_log_dirs({("t", 0, 1): 7}), "which replica goes where"),
        (lambda admin: admin.list_config_resources([2]), "is not of type ResourceType"),
    ],
)
def test_what_an_admin_cannot_ask_is_refused_before_anything_is_sent(ask: Callable[[Admin], object], said: str) -> None:
    with Admin(bootstrap_servers="localhost:1") as admin, pytest.raises(IllegalArgumentError, match=said):
        ask(admin)


def test_an_event_loop_of_ones_own_does_as_well(run: Run, broker: coterie.Broker) -> None:
    async def story() -> None:
        async with AsyncAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
            names = [f"own-{number}" for number in range(20)]
            await asyncio.gather(*(admin.create_topics([NewTopic(name, 1, 1)]) for name in names))
            assert set(names) <= {topic.name for topic in await admin.list_topics()}
            checked(await admin.delete_topics(names))
        with pytest.raises(CoterieError, match="this client is closed"):
            await admin.list_topics()

    run(story())


def test_settings_are_checked_before_anything_else() -> None:
    with pytest.raises(SettingsError, match=r"did you mean bootstrap\.servers"):
        Admin(bootstrap_server="localhost:9092")  # type: ignore[call-arg]
    with pytest.raises(SettingsError, match=r"bootstrap\.servers is empty"):
        Admin()
    with pytest.raises(SettingsError, match="client_id comes too late"):
        Admin(AdminSettings.of(), client_id="x")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda admin: admin.list_group_offsets(["readers"]), r"\['readers'\] is not the name of a group"),
        (lambda admin: admin.list_group_offsets("readers", ["orders"]), "'orders' is not a partition"),
        (lambda admin: admin.list_group_offsets("readers", "orders"), "is not a list of partitions"),
        (lambda admin: admin.alter_group_offsets(None, {}), "None is not the name of a group"),
        (lambda admin: admin.alter_group_offsets("readers", [("orders", 0)]), "which offset is for which partition"),
        (lambda admin: admin.delete_group_offsets(7, []), "7 is not the name of a group"),
        (lambda admin: admin.remove_members(["readers"]), "is not the name of a group"),
        (lambda admin: admin.remove_members("readers", "m-1"), "several may be given: give"),
        (lambda admin: admin.remove_members("readers", [""]), "does not name a member; give its id as text"),
        (lambda admin: admin.remove_members("readers", [7]), "does not name a member; give its id as text"),
        (lambda admin: admin.describe_groups("readers"), r"'readers' is one group.*\[\"readers\"\]"),
        (lambda admin: admin.delete_groups([None]), "None is not the name of a group"),
        (lambda admin: admin.describe_topics("orders"), "'orders' is one topic"),
        (lambda admin: admin.delete_topics("orders"), "'orders' is one topic"),
    ],
)
def test_what_is_not_what_was_asked_for_is_said_before_anybody_is_asked(
    call: Callable[[Admin], object], words: str
) -> None:
    with Admin(bootstrap_servers="localhost:1") as admin, pytest.raises(CoterieError, match=words):
        call(admin)


def quick(peer: Peer, **more: object) -> AsyncAdmin:
    return AsyncAdmin(AdminSettings.of({"bootstrap.servers": peer.bootstrap, "retry.backoff.ms": 1, **more}))


def led(peer: Peer, asked: Asked, partitions: int = 2) -> bytes:
    parts = [
        metadata.DescribedPartition(partition=number, leader_id=1, replicas=[1], isr=[1])
        for number in range(partitions)
    ]
    topics = [metadata.DescribedTopic(name="t", partitions=parts)]
    brokers = [metadata.Broker(node_id=1, host="127.0.0.1", port=peer.port)]
    return answer_to(asked, metadata.Response(brokers=brokers, controller_id=1, topics=topics))


def test_each_item_is_tried_again_for_itself(run: Run) -> None:
    """Of two partitions the first is answered at once, the second after its leader was looked up again."""

    async def story() -> None:
        wanted: list[list[int]] = []

        def script(asked: Asked) -> object:
            if asked.key == metadata.API.key:
                return led(peer, asked)
            request = list_offsets.read_request(asked.frame, asked.at, asked.version)
            numbers = [part.partition for part in request.topics[0].partitions]
            wanted.append(numbers)
            moved = ErrorCode.NOT_LEADER_OR_FOLLOWER if len(wanted) == 1 else ErrorCode.NONE
            answers = [
                list_offsets.ListedPartition(partition=number, offset=9, error=moved if number else ErrorCode.NONE)
                for number in numbers
            ]
            return answer_to(
                asked, list_offsets.Response(topics=[list_offsets.ListedTopic(name="t", partitions=answers)])
            )

        async with Peer(script) as peer, quick(peer) as admin:
            found = await admin.list_offsets({T0: LATEST, T1: LATEST})
            assert found == {T0: ListedOffset(9), T1: ListedOffset(9)} and wanted == [[0, 1], [1]]

    run(story())


def test_what_never_works_is_said_for_each_item_when_the_time_is_up(run: Run) -> None:
    async def story() -> None:
        def script(asked: Asked) -> object:
            if asked.key == metadata.API.key:
                return led(peer, asked)
            error = ErrorCode.NOT_CONTROLLER
            return answer_to(asked, create_topics.Response(topics=[create_topics.CreatedTopic(name="a", error=error)]))

        limits = {"default.api.timeout.ms": 2000, "request.timeout.ms": 1900}
        async with Peer(script) as peer, quick(peer, **limits) as admin:
            made = await admin.create_topics([NewTopic("a"), NewTopic("b")])
            assert isinstance(made["a"], RequestTimedOutError)
            assert "(gave up after 2 s)" in str(made["a"]) and "NOT_CONTROLLER" in str(made["a"])
            assert "the broker's answer does not mention it" in str(made["b"])

    run(story())


def test_a_broker_that_hangs_up_is_asked_again(run: Run) -> None:
    async def story() -> None:
        lives = [HANG_UP, HANG_UP]

        def script(asked: Asked) -> object:
            if asked.key == metadata.API.key:
                return led(peer, asked)
            if asked.key == find_coordinator.API.key:
                found = find_coordinator.Coordinator(key="g", node_id=1, host="127.0.0.1", port=peer.port)
                return answer_to(asked, find_coordinator.Response(coordinators=[found]))
            assert asked.key == describe_groups.API.key
            return lives.pop() if lives else answer_to(asked, [DescribedGroup("g", "Empty", "consumer")])

        async with Peer(script) as peer, quick(peer) as admin:
            (group,) = (await admin.describe_groups(["g"])).values()
            assert not isinstance(group, KafkaError) and group.state == "Empty" and not lives

    run(story())


def test_groups_of_every_type_are_described(run: Run) -> None:
    """A broker says of a group that is not classic that it does not exist; other APIs know it."""
    group_ids = ["classic", "newer", "nobody", "shared"]
    owned = consumer_group_describe.TopicPartitions(topic_id=None, topic="t", partitions=[1, 0])
    wanted = consumer_group_describe.TopicPartitions(topic_id=None, topic="t", partitions=[0])
    member = consumer_group_describe.Member(
        member_id="m-1",
        member_epoch=3,
        client_id="c",
        client_host="/127.0.0.1",
        subscribed_topic_names=["t"],
        assignment=consumer_group_describe.Assignment(topic_partitions=[owned]),
        target_assignment=consumer_group_describe.Assignment(topic_partitions=[wanted]),
    )
    newer = consumer_group_describe.DescribedGroup(
        group_id="newer",
        state="Reconciling",
        group_epoch=5,
        assignment_epoch=4,
        assignor_name="uniform",
        members=[member],
    )

    async def story() -> None:
        def script(asked: Asked) -> object:
            if asked.key == api_versions.API.key:
                return versions(asked, {row.key: (row.versions[0], row.versions[-1]) for row in APIS})
            if asked.key == find_coordinator.API.key:
                places = [
                    find_coordinator.Coordinator(key=key, node_id=1, host="127.0.0.1", port=peer.port)
                    for key in find_coordinator.read_request(asked.frame, asked.at, asked.version).keys
                ]
                return answer_to(asked, find_coordinator.Response(coordinators=places))
            if asked.key == describe_groups.API.key:
                found = [DescribedGroup(one, "Empty", "consumer", exists=one == "classic") for one in group_ids]
                return answer_to(asked, found)
            if asked.key == consumer_group_describe.API.key:
                request = consumer_group_describe.read_request(asked.frame, asked.at, asked.version)
                assert "classic" not in request.group_ids
                absent = [
                    consumer_group_describe.DescribedGroup(group_id=one, error=ErrorCode.GROUP_ID_NOT_FOUND)
                    for one in ("nobody", "shared")
                ]
                return answer_to(asked, consumer_group_describe.Response(groups=[newer, *absent]))
            if asked.key == list_groups.API.key:
                return answer_to(asked, [ListedGroup("shared", "share", "Stable", "share")])
            return led(peer, asked)

        async with Peer(script, handshakes=False) as peer, quick(peer) as admin:
            found = await admin.describe_groups(group_ids)
            assert code_of(found["nobody"]) is ErrorCode.GROUP_ID_NOT_FOUND
            described = checked({name: one for name, one in found.items() if name != "nobody"})
            assert {name: (one.type, one.state, one.shows_members) for name, one in described.items()} == {
                "classic": ("classic", "Empty", True),
                "newer": ("consumer", "Reconciling", True),
                "shared": ("share", "Stable", False),
            }
            group = described["newer"]
            assert (group.assignor, group.group_epoch, group.assignment_epoch) == ("uniform", 5, 4)
            (described_member,) = group.members
            assert described_member.assignment == (T0, T1) and described_member.target_assignment == (T0,)
            assert described_member.epoch == 3 and described_member.topics == ("t",)
            with pytest.raises(KafkaError, match="is a share group: this admin does not know its members"):
                await admin.remove_members("shared")

    run(story())


def test_a_coordinator_that_wakes_up_is_waited_for(run: Run) -> None:
    async def story() -> None:
        loads = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE]

        def script(asked: Asked) -> object:
            if asked.key == find_coordinator.API.key:
                error = loads.pop() if loads else ErrorCode.GROUP_AUTHORIZATION_FAILED
                return answer_to(
                    asked, find_coordinator.Response(coordinators=[find_coordinator.Coordinator(key="g", error=error)])
                )
            return led(peer, asked)

        async with Peer(script) as peer, quick(peer) as admin:
            found = await admin.delete_groups(["g"])
            assert code_of(found["g"]) is ErrorCode.GROUP_AUTHORIZATION_FAILED and not loads

    run(story())

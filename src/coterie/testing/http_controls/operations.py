"""The operations of the test controls: one table, which routes requests and makes the OpenAPI description.

A row is an HTTP method, a path, and a chain of methods: each is called on what the one before returned, the first on
the `TestControls`. The parameters of an operation are those of its methods, with their types, defaults and docstrings.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_type_hints

from coterie.errors import CoterieError
from coterie.facts import Fact
from coterie.ledger import plain
from coterie.protocol.records import Record
from coterie.testing.broker_faults import Faults
from coterie.testing.clock import BrokerClock
from coterie.testing.faults import Fault
from coterie.testing.groups import Group, GroupSnapshot
from coterie.testing.http_controls.json_values import read, write
from coterie.testing.http_controls.served_broker import (
    FaultState,
    RecordState,
    RequestState,
    ServedGroupState,
    TestControls,
    TopicState,
)
from coterie.testing.kafka_broker import KafkaBroker
from coterie.testing.request_faults import FaultBuilder
from coterie.testing.requests import Request, nearest
from coterie.testing.topics import Topic

LONGEST_WAIT_S = 3_600.0
Step = Callable[..., Any] | property


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an operation: in the path, in the query of a GET, or else in the body."""

    name: str
    kind: Any
    is_required: bool
    default: Any
    doc: str
    step: int
    """Which method of the chain takes it."""

    def read(self, value: Any) -> Any:
        """Return a value of JSON as the method takes it."""
        found = read(self.kind, value, self.name)
        if self.name == "timeout" and not 0 <= found <= LONGEST_WAIT_S:
            raise CoterieError(f"timeout is {found:g}: it must be from 0 to {LONGEST_WAIT_S:g} seconds")
        return found

    def read_text(self, text: str) -> Any:
        """Return a text of a path or a query as the method takes it."""
        if str in (self.kind, *getattr(self.kind, "__args__", ())):
            return self.read(text)
        if not re.fullmatch(r"-?[0-9]{1,18}", text, re.ASCII):
            raise CoterieError(f"{self.name} is {text[:100]!r}: it must be a whole number")
        return self.read(int(text))


@dataclass(frozen=True)
class Operation:
    """A row of the table."""

    name: str
    method: str
    path: str
    chain: tuple[Step, ...]

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(self.path)))

    @cached_property
    def parameters(self) -> Mapping[str, Parameter]:
        found = [one for number, step in enumerate(self.chain) for one in _parameters(step, number)]
        assert len({one.name for one in found}) == len(found), f"{self.name}: two parameters have the same name"
        return {one.name: one for one in found}

    @cached_property
    def in_path(self) -> Sequence[str]:
        return re.findall(r"\{(\w+)\}", self.path)

    @property
    def doc(self) -> str:
        """What it does: the docstring of its last method, up to the lists of arguments and errors."""
        return _text_of(self.chain[-1])

    @property
    def can_fail(self) -> bool:
        """Whether it may say that something did not happen as the test asked."""
        said = inspect.getdoc(_function(self.chain[-1])) or ""
        return any(name in said for name in ("WaitTimeoutError", "FaultNotFiredError", "AssertionError"))

    @cached_property
    def returns(self) -> Any:
        """The annotation of what is written."""
        kind = get_type_hints(_function(self.chain[-1]))["return"]
        if isinstance(kind, type) and issubclass(kind, Fault):
            return FaultState
        return _SHOWN.get(kind, kind)

    def arguments(self, path: Mapping[str, str], query: Mapping[str, str], body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the parameters.

        Raises:
            CoterieError: One is missing, unknown or not what it has to be.
        """
        known = self.parameters
        others = [name for name in known if name not in self.in_path]
        for name in (*query, *body):
            if name not in others:
                hint = nearest(name, others) if others else "it has none"
                raise CoterieError(f"{self.name} has no parameter {name!r}: {hint}")
        values = {name: known[name].read_text(text) for name, text in {**path, **query}.items()}
        values.update({name: known[name].read(value) for name, value in body.items()})
        for name, one in known.items():
            if one.is_required and name not in values:
                raise CoterieError(f"{self.name} needs the parameter {name!r}: {one.doc or 'it has no default'}")
        return values

    def run(self, controls: TestControls, values: Mapping[str, Any]) -> Any:
        """Call the methods, and return the result as values of JSON."""
        found: Any = controls
        for number, step in enumerate(self.chain):
            name = _function(step).__name__
            own = {
                one.name: values[one.name]
                for one in self.parameters.values()
                if one.step == number and one.name in values
            }
            found = getattr(found, name)
            if not isinstance(step, property):
                found = found(**own)
        return write(shown(controls, found))


def shown(controls: TestControls, found: Any) -> Any:
    """Return what is written for what a method returned."""
    match found:
        case Fault():
            return controls.begin_fault(found)
        case GroupSnapshot():
            return ServedGroupState.of(found)
        case Group():
            return found.group_id
        case Topic():
            return TopicState(found.name, found.partitions)
        case Record():
            return RecordState.of(found)
        case Request():
            return RequestState.of(found)
        case Fact():
            return plain(found)
        case list():
            return [shown(controls, one) for one in found]
        case _:
            return found


_SHOWN: Mapping[Any, Any] = {
    GroupSnapshot: ServedGroupState,
    Topic: TopicState,
    list[Group]: list[str],
    list[Record]: list[RecordState],
    list[Request]: list[RequestState],
    list[Fact]: list[dict[str, Any]],
}
"""What `shown` makes of what methods return."""


# --- reading the methods ----------------------------------------------------------------------------------------------


def _function(step: Step) -> Callable[..., Any]:
    found = step.fget if isinstance(step, property) else step
    assert found is not None
    return found


def _text_of(step: Step) -> str:
    text = inspect.getdoc(_function(step)) or ""
    return re.split(r"\n\n(?:Args|Returns|Raises|Example)::?\n", text)[0]


def _parameters(step: Step, number: int) -> list[Parameter]:
    if isinstance(step, property):
        return []
    hints, docs = get_type_hints(step), _docs_of_parameters(step)
    found = []
    for name, one in list(inspect.signature(step).parameters.items())[1:]:
        if one.kind is not inspect.Parameter.VAR_KEYWORD:
            is_required = one.default is inspect.Parameter.empty
            default = None if is_required else one.default
            found.append(Parameter(name, hints[name], is_required, default, docs.get(name, ""), number))
    return found


def _docs_of_parameters(step: Step) -> dict[str, str]:
    """Return what the docstring says of each parameter."""
    text = inspect.getdoc(_function(step)) or ""
    listed = re.search(r"\nArgs:\n((?: +.*\n?)+)", text)
    if listed is None:
        return {}
    entries = re.findall(r"^ {4}\*{0,2}(\w+): (.*(?:\n {8}.*)*)", listed[1], re.MULTILINE)
    return {name: re.sub(r"\s+", " ", doc) for name, doc in entries}


# --- the table --------------------------------------------------------------------------------------------------------

_broker: Step = TestControls.broker
_clock: Step = TestControls.clock
_faults: Step = TestControls.faults

OPERATIONS: Sequence[Operation] = (
    Operation("about", "GET", "/", (TestControls.about,)),
    Operation("reset", "POST", "/reset", (TestControls.reset,)),
    Operation("restart", "POST", "/restart", (_broker, KafkaBroker.restart)),
    # --- topics
    Operation("createTopic", "POST", "/topics", (_broker, KafkaBroker.create_topic)),
    Operation("topic", "GET", "/topics/{name}", (_broker, KafkaBroker.topic)),
    Operation("produce", "POST", "/topics/{name}/records", (TestControls.produce,)),
    Operation("records", "GET", "/topics/{name}/records", (_broker, KafkaBroker.topic, Topic.records)),
    Operation("waitRecords", "POST", "/topics/{name}/wait-records", (_broker, KafkaBroker.topic, Topic.wait_records)),
    Operation(
        "assertProcessedOnce",
        "POST",
        "/topics/{name}/assert-processed-once",
        (_broker, KafkaBroker.topic, Topic.assert_processed_once),
    ),
    # --- groups
    Operation("groups", "GET", "/groups", (_broker, KafkaBroker.groups)),
    *(
        Operation(name, method, "/groups/{group_id}" + path, (_broker, KafkaBroker.group, of))
        for name, method, path, of in (
            ("group", "GET", "", Group.snapshot),
            ("rebalances", "GET", "/rebalances", Group.rebalances),
            ("waitStable", "POST", "/wait-stable", Group.wait_stable),
            ("waitMembers", "POST", "/wait-members", Group.wait_members),
            ("waitEmpty", "POST", "/wait-empty", Group.wait_empty),
            ("waitRunning", "POST", "/wait-running", Group.wait_running),
            ("waitDisconnected", "POST", "/wait-disconnected", Group.wait_disconnected),
            ("waitAssigned", "POST", "/wait-assigned", Group.wait_assigned),
            ("waitCommitted", "POST", "/wait-committed", Group.wait_committed),
            ("waitRebalance", "POST", "/wait-rebalance", Group.wait_rebalance),
        )
    ),
    # --- inspecting
    Operation("requests", "GET", "/requests", (_broker, KafkaBroker.requests)),
    Operation("story", "GET", "/story", (_broker, KafkaBroker.story)),
    Operation("facts", "GET", "/facts", (_broker, KafkaBroker.facts)),
    # --- the clock
    Operation("clock", "GET", "/clock", (TestControls.clock_state,)),
    Operation("advance", "POST", "/clock/advance", (_clock, BrokerClock.advance)),
    Operation("silence", "POST", "/clock/silence", (_clock, BrokerClock.silence)),
    Operation("freeze", "POST", "/clock/freeze", (_clock, BrokerClock.freeze)),
    Operation("resume", "POST", "/clock/resume", (_clock, BrokerClock.resume)),
    # --- faults: each begins at once, and has a number
    *(
        Operation(name, "POST", "/faults/" + path, (_faults, Faults.on, of))
        for name, path, of in (
            ("answerError", "answer", FaultBuilder.answer),
            ("delay", "delay", FaultBuilder.delay),
            ("hold", "hold", FaultBuilder.hold),
            ("dropConnection", "drop-connection", FaultBuilder.drop_connection),
            ("loseAnswer", "lose-answer", FaultBuilder.lose_answer),
            ("garble", "garble", FaultBuilder.garble),
            ("throttle", "throttle", FaultBuilder.throttle),
            ("moveCoordinatorOn", "move-coordinator-on", FaultBuilder.move_coordinator),
            ("expireMemberOn", "expire-member-on", FaultBuilder.expire_member),
        )
    ),
    *(
        Operation(name, "POST", "/faults/" + path, (_faults, of))
        for name, path, of in (
            ("cutOff", "cut-off", Faults.cut_off),
            ("diskFull", "disk-full", Faults.disk_full),
            ("slowDisk", "slow-disk", Faults.slow_disk),
            ("stopNode", "stop-node", Faults.stop_node),
            ("moveCoordinator", "move-coordinator", Faults.move_coordinator),
            ("crash", "crash", Faults.crash),
        )
    ),
    Operation("faults", "GET", "/faults", (TestControls.fault_states,)),
    Operation("endFaults", "DELETE", "/faults", (TestControls.end_faults,)),
    Operation("fault", "GET", "/faults/{number}", (TestControls.fault_state,)),
    Operation("endFault", "DELETE", "/faults/{number}", (TestControls.end_fault,)),
    Operation("abandonFault", "POST", "/faults/{number}/abandon", (TestControls.abandon_fault,)),
    Operation("waitHit", "POST", "/faults/{number}/wait-hit", (TestControls.fault, Fault.wait_hit)),
)


def find(method: str, path: str) -> tuple[Operation, Mapping[str, str]] | list[str]:
    """Return the operation of a request and what its path has for parameters; else the methods that the path has."""
    allowed = []
    for operation in OPERATIONS:
        match = operation.pattern.fullmatch(path)
        if match is not None:
            if operation.method == method:
                return operation, match.groupdict()
            allowed.append(operation.method)
    return allowed

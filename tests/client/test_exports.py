from __future__ import annotations

import ast
import asyncio
import re
import subprocess
import sys
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest

import coterie
import coterie.client.admin as admin_room
from coterie.client.consumer.rebalance_listener import listener_of
from coterie.client.member.effects import Listened
from coterie.errors import CoterieError, IllegalTransitionError


def test_the_admin_room_exports_exactly_what_it_names() -> None:
    public = {
        name for name, value in vars(admin_room).items() if getattr(value, "__module__", "").startswith("coterie.")
    }
    assert public | {"EARLIEST", "LATEST", "MAX_TIMESTAMP"} == set(admin_room.__all__)


def test_public_names_load_when_they_are_asked_for() -> None:
    for name in coterie.__all__:
        assert getattr(coterie, name) is not None
    program = "import sys, coterie; print(sorted(name for name in sys.modules if name.startswith('coterie')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['coterie', 'coterie.version']"


def test_an_editor_sees_the_names_that_load() -> None:
    """The imports under TYPE_CHECKING, the table of homes and `__all__` name the same things in the same modules."""
    tree = ast.parse(Path(coterie.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {name.name: one.module for one in block.body if isinstance(one, ast.ImportFrom) for name in one.names}
    assert seen == coterie._HOMES
    assert set(coterie.__all__) == {*seen, "__version__"}


def test_every_error_that_a_client_raises_can_be_named() -> None:
    for module in set(coterie._HOMES.values()):
        import_module(module)
    ours = {IllegalTransitionError: "a defect of ours"}
    rooms = ("coterie.client.", "coterie.errors", "coterie.settings.", "coterie.assignors.registry")
    raised = [one for one in _kinds_of(CoterieError) if one.__module__.startswith(rooms) and one not in ours]
    assert len(raised) > 15
    assert [one for one in raised if getattr(coterie, one.__name__, None) is not one] == []


def _kinds_of(error: type[Exception]) -> list[type[Exception]]:
    return [error, *(kind for one in error.__subclasses__() for kind in _kinds_of(one))]


def test_a_listener_that_overrides_nothing_hears_of_lost_partitions_as_revoked() -> None:
    class Mine(coterie.ConsumerRebalanceListener):
        def __init__(self) -> None:
            self.heard: list[object] = []

        def on_partitions_revoked(self, partitions: list[coterie.TopicPartition]) -> None:
            self.heard.append(partitions)

    mine = Mine()
    listener = listener_of(mine)
    for kind in Listened:
        assert listener.hears(kind)
        listener.call(kind, [coterie.TopicPartition("orders", 0)])
    assert mine.heard == [[("orders", 0)]] * 2


def test_a_listener_may_be_asynchronous() -> None:
    class Mine(coterie.ConsumerRebalanceListener):
        async def on_partitions_revoked(self, partitions: list[coterie.TopicPartition]) -> None:
            """Do nothing."""

    with pytest.raises(CoterieError, match="which a Consumer cannot await"):
        listener_of(Mine()).refuse_coroutines()
    answer = listener_of(Mine()).call(Listened.LOST, [])
    asyncio.run(answer)


def test_dir_lists_the_public_names() -> None:
    assert dir(coterie) == sorted(coterie.__all__)
    program = "import sys, coterie; dir(coterie); print('coterie.broker' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False", "looking loads nothing"


CLIENTS = [(coterie.Consumer, coterie.AsyncConsumer), (coterie.Producer, coterie.AsyncProducer)]
CLIENTS += [(coterie.Admin, coterie.AsyncAdmin)]
ONLY_ASYNC = {"send_and_wait"}


def _public(kind: type) -> dict[str, object]:
    return {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(("plain", "asynchronous"), CLIENTS, ids=lambda kind: kind.__name__)
def test_both_clients_of_a_kind_have_the_same_methods(plain: type, asynchronous: type) -> None:
    """What drives them is hidden, so that the two have nothing in common but what users call."""
    made = asynchronous(bootstrap_servers="localhost:1")
    seen = {name for name in dir(made) if not name.startswith("_")}
    assert seen - ONLY_ASYNC == _public(plain).keys() | {"settings"}
    for name, method in _public(plain).items():
        if callable(method):
            assert signature(method).parameters == signature(getattr(asynchronous, name)).parameters, name


@pytest.mark.parametrize("kind", [kind for pair in CLIENTS for kind in pair], ids=lambda kind: kind.__name__)
def test_every_public_method_says_what_it_takes_returns_and_raises(kind: type) -> None:
    """Both of a pair say the same, but for what differs between threads and tasks."""
    for name, method in _public(kind).items():
        said = getattr(method, "__doc__", None) or ""
        assert said, f"{kind.__name__}.{name} has no docstring"
        if not callable(method):
            continue
        takes = [one for one in signature(method).parameters if one != "self"]
        untold = [one for one in takes if not re.search(rf"^ +\*{{0,2}}{one}: ", said, re.MULTILINE)]
        assert untold == [], f"{kind.__name__}.{name} does not say what these are"
        returns = signature(method).return_annotation
        assert ("Returns:" in said) == (returns not in {"None", None}), f"{kind.__name__}.{name} returns {returns}"


@pytest.mark.parametrize(("plain", "asynchronous"), CLIENTS, ids=lambda kind: kind.__name__)
def test_both_clients_of_a_kind_are_described_in_the_same_words(plain: type, asynchronous: type) -> None:
    for name in _public(plain).keys() - {"settings", "send"}:
        assert getattr(plain, name).__doc__ == getattr(asynchronous, name).__doc__, name

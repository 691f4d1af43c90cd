"""Reading all subscriptions of a group at once gives what reading each of them gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import MalformedError
from coterie.protocol.subscription import (
    VERSIONS,
    Subscription,
    read_subscription,
    read_subscriptions,
    write_subscription,
)

subscriptions = st.builds(
    Subscription,
    topics=st.lists(st.sampled_from(["t", "tt", "u", "orders"]), max_size=3, unique=True),
    user_data=st.none() | st.binary(max_size=6),
    version=st.sampled_from(list(VERSIONS)),
)


@given(st.lists(st.one_of(st.builds(write_subscription, subscriptions), st.binary(max_size=12)), max_size=6))
def test_many_are_read_as_each_alone_is(messages: list[bytes]) -> None:
    try:
        each = [read_subscription(message) for message in messages]
    except MalformedError:
        with pytest.raises(MalformedError):
            read_subscriptions(messages)
    else:
        assert read_subscriptions(messages) == each


def test_a_list_that_begins_like_the_last_one_is_not_taken_for_it() -> None:
    """The comparison includes the number of topics, so a longer list differs at once."""
    messages = [write_subscription(Subscription(topics)) for topics in (["t"], ["t", "u"], ["t"], [])]
    assert [list(one.topics) for one in read_subscriptions(messages)] == [["t"], ["t", "u"], ["t"], []]

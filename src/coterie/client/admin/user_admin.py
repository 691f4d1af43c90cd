"""Users who log in by SCRAM (KIP-554). The password stays here: what is sent is derived from it."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple

from coterie.client.admin.results import FOR_TOPICS, each, failure
from coterie.client.arguments import all_of, names_of
from coterie.client.network.network_client import NetworkClient
from coterie.errors import IllegalArgumentError, KafkaError
from coterie.protocol.apis import alter_user_scram_credentials, describe_user_scram_credentials
from coterie.protocol.sasl_mechanisms import HASHES, ITERATIONS, salted_password

_NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_MECHANISMS = {number: mechanism for mechanism, number in _NUMBERS.items()}
_SALT_BYTES = 24


class ScramCredentialInfo(NamedTuple):
    """A mechanism that a user can log in with."""

    mechanism: str
    iterations: int


class ScramAlteration:
    """A `ScramUpsertion` or a `ScramDeletion`."""

    __slots__ = ()
    user: str
    mechanism: str


@dataclass(frozen=True, slots=True)
class ScramUpsertion(ScramAlteration):
    """A password for a user, in place of the one before.

    Args:
        user: The name of the user.
        password: The password. It is not sent, and not shown.
        mechanism: `SCRAM-SHA-256` or `SCRAM-SHA-512`. A user has a credential for each.
        iterations: How often the password is hashed, 4 096 to 16 384 times.
    """

    user: str
    password: str = field(repr=False)
    mechanism: str = "SCRAM-SHA-256"
    iterations: int = ITERATIONS


@dataclass(frozen=True, slots=True)
class ScramDeletion(ScramAlteration):
    """A user cannot log in by a mechanism any more.

    Args:
        user: The name of the user.
        mechanism: `SCRAM-SHA-256` or `SCRAM-SHA-512`.
    """

    user: str
    mechanism: str = "SCRAM-SHA-256"


class UsersAdmin:
    _cluster: NetworkClient

    async def describe_user_scram_credentials(
        self, users: Collection[str] | None = None
    ) -> dict[str, list[ScramCredentialInfo] | KafkaError]:
        """Describe by which SCRAM mechanisms users can log in.

        Args:
            users: The names of the users; all that have a credential if they are not given.

        Returns:
            The mechanisms of each user, or the error it met.

        Raises:
            KafkaError: All users were asked for, and the broker refused it, or could not be reached in time.
        """
        if users is None:
            return await self._cluster.retry(lambda: self._ask_about_users(None), what="describing all users")
        return await each(
            self._cluster,
            names_of(users, "user"),
            self._ask_about_users,
            what=lambda user: f"describing user {user!r}",
            again=FOR_TOPICS,
        )

    async def _ask_about_users(self, users: Sequence[str] | None) -> dict[str, list[ScramCredentialInfo] | KafkaError]:
        named = None if users is None else [describe_user_scram_credentials.User(name=user) for user in users]
        request = describe_user_scram_credentials.Request(users=named)
        response: describe_user_scram_credentials.Response
        response = await self._ask_about_credentials(describe_user_scram_credentials, request)
        if response.error:
            raise KafkaError.of(response.error, "describing users", response.message)
        found: dict[str, list[ScramCredentialInfo] | KafkaError] = {}
        for result in response.results:
            error = failure(result.error, f"describing user {result.user!r}", result.message)
            found[result.user] = error or [
                ScramCredentialInfo(_MECHANISMS.get(info.mechanism, "UNKNOWN"), info.iterations)
                for info in result.credential_infos
            ]
        return found

    async def alter_user_scram_credentials(
        self, alterations: Collection[ScramUpsertion | ScramDeletion]
    ) -> dict[str, KafkaError | None]:
        """Give users passwords for SCRAM, or take them away.

        Args:
            alterations: What to change: `ScramUpsertion("alice", "secret")` or `ScramDeletion("alice")`. A user may
                be named once.

        Returns:
            None for each user whose credential was changed, or the error it met.
        """
        wanted = all_of(alterations, ScramAlteration, '[ScramUpsertion("alice", "secret")]')
        for one in wanted:
            if one.mechanism not in _NUMBERS:
                raise IllegalArgumentError(f"{one.mechanism!r} is not a SCRAM mechanism: give {' or '.join(_NUMBERS)}")
        by_user = {one.user: one for one in wanted}
        if len(by_user) < len(wanted):
            raise IllegalArgumentError("a user is named twice; change one mechanism after the other")

        async def ask(left: Sequence[str]) -> dict[str, KafkaError | None]:
            chosen = [by_user[user] for user in left]
            request = alter_user_scram_credentials.Request(
                deletions=[_deletion(one) for one in chosen if isinstance(one, ScramDeletion)],
                upsertions=[_upsertion(one) for one in chosen if isinstance(one, ScramUpsertion)],
            )
            response: alter_user_scram_credentials.Response
            response = await self._ask_about_credentials(alter_user_scram_credentials, request)
            return {
                result.user: failure(result.error, f"changing user {result.user!r}", result.message)
                for result in response.results
            }

        return await each(self._cluster, by_user, ask, what=lambda user: f"changing user {user!r}", again=FOR_TOPICS)

    async def _ask_about_credentials(self, api: ModuleType, request: Any) -> Any:
        return await self._cluster.send(await self._cluster.controller(), api, request)


def _deletion(one: ScramDeletion) -> alter_user_scram_credentials.Deletion:
    return alter_user_scram_credentials.Deletion(name=one.user, mechanism=_NUMBERS[one.mechanism])


def _upsertion(one: ScramUpsertion) -> alter_user_scram_credentials.Upsertion:
    """Hash the password, with a salt of its own each time."""
    assert one.mechanism in HASHES
    salt = os.urandom(_SALT_BYTES)
    return alter_user_scram_credentials.Upsertion(
        name=one.user,
        mechanism=_NUMBERS[one.mechanism],
        iterations=one.iterations,
        salt=salt,
        salted_password=salted_password(one.mechanism, one.password, salt, max(one.iterations, 1)),
    )

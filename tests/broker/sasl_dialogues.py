"""SASL dialogues as bytes on a socket: what each hears from a broker, Apache Kafka's or ours, and whether it is closed.

A dialogue is a function that talks; `heard` then has a plain row for each answer, which can be compared and stored.
"""

from __future__ import annotations

import base64
import json
import math
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from types import ModuleType
from typing import Any

from coterie.broker.io.clock import wall_ms
from coterie.protocol.apis import (
    Api,
    api_versions,
    delete_groups,
    describe_cluster,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
)
from coterie.protocol.frames import read_response_header, request_frame
from coterie.protocol.messages import (
    CommitPartition,
    DeleteGroup,
    DescribeGroup,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    Protocol,
    SyncGroup,
)
from coterie.protocol.sasl_mechanisms import ScramClient
from coterie.structs import field_names, is_data
from secured_kafka import REAUTH_MS

__all__ = ["DIALOGUES", "Talk", "plain", "talk_to"]

SESSION_S = REAUTH_MS["sasl_plaintext.scram-sha-512"] / 1000
ANSWERS_WITHIN_S = 8
VERSIONS = api_versions.Request(client_software_name="test", client_software_version="1")


class Talk:
    def __init__(self, address: str, wrap: Callable[[socket.socket], socket.socket] = lambda plain: plain) -> None:
        host, _, port = address.rpartition(":")
        self._socket = wrap(socket.create_connection((host, int(port)), timeout=ANSWERS_WITHIN_S))
        self._correlation_id = 0
        self.heard: list[Any] = []

    def close(self) -> None:
        self._socket.close()

    # --- sending ------------------------------------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        with suppress(OSError):  # the broker has closed it, which is heard next
            self._socket.sendall(data)

    def frame(self, content: bytes) -> None:
        self.send(struct.pack(">i", len(content)) + content)

    def request(self, module: ModuleType, version: int, request: Any) -> bytes:
        self._correlation_id += 1
        api: Api = module.API
        body = module.write_request(request, min(version, api.versions[-1]))
        return request_frame(api.key, version, self._correlation_id, "test", body, flexible=version >= api.flexible)

    def ask(self, module: ModuleType, version: int, request: Any) -> Any:
        self.send(self.request(module, version, request))
        return self.hear(module, version)

    # --- hearing ------------------------------------------------------------------------------------------------------

    def _read(self, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            try:
                part = self._socket.recv(size - len(data))
            except ConnectionResetError:
                return None
            if not part:
                return None
            data += part
        return data

    def hear_frame(self) -> bytes | None:
        try:
            head = self._read(4)
        except TimeoutError:
            self.heard.append("silent")
            return None
        if head is None:
            self.heard.append("closed")
            return None
        return self._read(struct.unpack(">i", head)[0])

    def hear(self, module: ModuleType, version: int) -> Any:
        """The next answer, and a row about it; None if there is none."""
        frame = self.hear_frame()
        if frame is None:
            return None
        api: Api = module.API
        correlation_id, at = read_response_header(frame, flexible=api.has_flexible_response_header(version))
        assert correlation_id <= self._correlation_id
        answer = module.read_response(frame, at, version)
        self.heard.append([api.name, *_row(module, answer)])
        return answer

    def hear_token(self) -> bytes | None:
        token = self.hear_frame()
        if token is not None:
            self.heard.append(["token", _plain_token(token)])
        return token

    def ends(self) -> None:
        """Nothing more is said, and the connection is closed."""
        assert self.hear_frame() is None

    # --- SASL ---------------------------------------------------------------------------------------------------------

    def versions(self, version: int = 3) -> Any:
        return self.ask(api_versions, version, VERSIONS)

    def handshake(self, mechanism: str, version: int = 1) -> Any:
        return self.ask(sasl_handshake, version, sasl_handshake.Request(mechanism=mechanism))

    def authenticate(self, token: bytes, version: int = 2) -> Any:
        return self.ask(sasl_authenticate, version, sasl_authenticate.Request(auth_bytes=token))

    def scram(self, user: str = "alice", password: str = "alice-secret", mechanism: str = "SCRAM-SHA-512") -> Any:
        """Handshake and both tokens."""
        client = ScramClient(mechanism, user, password, "nonce")
        self.handshake(mechanism)
        answer = self.authenticate(client.respond(b""))
        if answer is not None and not answer.error:
            answer = self.authenticate(client.respond(answer.auth_bytes))
        return answer

    def works(self) -> None:
        """An ordinary request is answered."""
        answer = self.ask(metadata, 12, metadata.Request(topics=[]))
        assert answer is None or answer.brokers


@contextmanager
def talk_to(address: str, **more: Any) -> Iterator[Talk]:
    talk = Talk(address, **more)
    try:
        yield talk
    finally:
        talk.close()


def _row(module: ModuleType, answer: Any) -> list[Any]:
    if module is api_versions:
        return [int(answer.error), len(answer.api_keys) > 20]
    if module is sasl_handshake:
        return [int(answer.error), sorted(answer.mechanisms)]
    if module is sasl_authenticate:
        lifetime_s = math.ceil(answer.session_lifetime_ms / 1000)  # some of a token's has passed
        return [int(answer.error), answer.message, _plain_token(answer.auth_bytes), lifetime_s]
    if module is metadata:
        return [len(answer.brokers)]
    if module in {api for api, _ in GROUP_REQUESTS}:
        return [_plain_value(answer)]
    return [int(getattr(answer, "error", 0))]


def _plain_value(value: Any) -> Any:
    """An answer of a group, as JSON has it."""
    if is_data(value) and not isinstance(value, type):
        return {name: _plain_value(getattr(value, name)) for name in field_names(value)}
    if isinstance(value, dict):
        return {name: _plain_value(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_value(each) for each in value]
    return value.decode() if isinstance(value, bytes) else value


def _plain_token(token: bytes) -> str:
    """The nonce and the salt of SCRAM are another each time."""
    text = token.decode("latin-1")
    if text.startswith("r="):
        parts = dict(part.split("=", 1) for part in text.split(","))
        return f"r={'+' if len(parts['r']) > 10 else parts['r']},s=,i={parts['i']}"
    return "v=" if text.startswith("v=") else text


def plain(user: str, password: str, authorization_id: str = "") -> bytes:
    return f"{authorization_id}\0{user}\0{password}".encode()


ALICE = plain("alice", "alice-secret")


def unsecured(claims: dict[str, Any] | None = None, header: dict[str, Any] | None = None, signature: str = "") -> str:
    now_s = wall_ms() / 1000
    body = {"sub": "alice", "iat": now_s - 10, "exp": now_s + 100} if claims is None else claims
    parts = ({"alg": "none"} if header is None else header, body)
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join([*encoded, signature])


def bearer(token: str | None = None, authorization_id: str = "", more: str = "") -> bytes:
    authzid = f"a={authorization_id}" if authorization_id else ""
    return f"n,{authzid},\x01auth=Bearer {unsecured() if token is None else token}{more}\x01\x01".encode()


Dialogue = Callable[[Talk], None]
DIALOGUES: dict[str, tuple[int, Dialogue]] = {}
"""By name: the rule, and what is said."""


def dialogue(rule: int) -> Callable[[Dialogue], Dialogue]:
    def add(function: Dialogue) -> Dialogue:
        DIALOGUES[function.__name__] = rule, function
        return function

    return add


# --- the states -------------------------------------------------------------------------------------------------------


@dialogue(2)
def versions_handshake_authenticate(talk: Talk) -> None:
    talk.versions()
    talk.handshake("PLAIN")
    talk.authenticate(ALICE)
    talk.works()


@dialogue(2)
def versions_may_be_left_out(talk: Talk) -> None:
    talk.handshake("PLAIN")
    talk.authenticate(ALICE)
    talk.versions()
    talk.versions()
    talk.works()


@dialogue(2)
def all_in_one_write(talk: Talk) -> None:
    talk.send(
        talk.request(sasl_handshake, 1, sasl_handshake.Request(mechanism="PLAIN"))
        + talk.request(sasl_authenticate, 2, sasl_authenticate.Request(auth_bytes=ALICE))
        + talk.request(metadata, 12, metadata.Request(topics=[]))
    )
    talk.hear(sasl_handshake, 1)
    talk.hear(sasl_authenticate, 2)
    talk.hear(metadata, 12)


@dialogue(3)
def versions_twice(talk: Talk) -> None:
    talk.versions()
    talk.versions()


@dialogue(3)
def versions_of_an_unknown_version_do_not_count(talk: Talk) -> None:
    talk.send(talk.request(api_versions, 9, VERSIONS))
    talk.hear(api_versions, 0)
    talk.versions()
    talk.versions()


@dialogue(3)
def versions_with_an_invalid_name_do_not_count(talk: Talk) -> None:
    talk.ask(api_versions, 3, api_versions.Request(client_software_name="-", client_software_version="1"))
    talk.versions()
    talk.versions()


@dialogue(4)
def metadata_first(talk: Talk) -> None:
    talk.works()


@dialogue(4)
def metadata_after_versions(talk: Talk) -> None:
    talk.versions()
    talk.works()


@dialogue(4)
def authenticate_first(talk: Talk) -> None:
    talk.authenticate(ALICE)


@dialogue(4)
def junk_first(talk: Talk) -> None:
    talk.frame(b"\xff" * 40)
    talk.ends()


@dialogue(4)
def http_first(talk: Talk) -> None:
    talk.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    talk.ends()


@dialogue(4)
def a_bare_gssapi_token_first(talk: Talk) -> None:
    talk.frame(b"\x60\x82\x02\x00" + bytes(200))
    talk.ends()


@dialogue(4)
def handshake_of_an_unknown_version(talk: Talk) -> None:
    talk.send(talk.request(sasl_handshake, 2, sasl_handshake.Request(mechanism="PLAIN")))
    talk.ends()


@dialogue(4)
def authenticate_of_an_unknown_version(talk: Talk) -> None:
    talk.handshake("PLAIN")
    talk.send(talk.request(sasl_authenticate, 3, sasl_authenticate.Request(auth_bytes=ALICE)))
    talk.ends()


@dialogue(5)
def an_unknown_mechanism(talk: Talk) -> None:
    talk.handshake("GSSAPI")
    talk.ends()


@dialogue(5)
def a_mechanism_in_lower_case(talk: Talk) -> None:
    talk.handshake("plain")
    talk.ends()


@dialogue(5)
def channel_binding_is_unknown(talk: Talk) -> None:
    talk.handshake("SCRAM-SHA-256-PLUS")
    talk.ends()


@dialogue(6)
def bare_plain(talk: Talk) -> None:
    talk.handshake("PLAIN", 0)
    talk.frame(ALICE)
    talk.hear_token()
    talk.works()


@dialogue(6)
def bare_plain_with_a_wrong_password(talk: Talk) -> None:
    talk.handshake("PLAIN", 0)
    talk.frame(plain("alice", "wrong"))
    talk.ends()


@dialogue(6)
def bare_scram(talk: Talk) -> None:
    client = ScramClient("SCRAM-SHA-256", "alice", "alice-secret", "nonce")
    talk.handshake("SCRAM-SHA-256", 0)
    talk.frame(client.respond(b""))
    talk.frame(client.respond(talk.hear_token() or b""))
    talk.hear_token()
    talk.works()


@dialogue(6)
def bare_oauthbearer_that_is_refused(talk: Talk) -> None:
    talk.handshake("OAUTHBEARER", 0)
    talk.frame(bearer("no-token"))
    talk.hear_token()
    talk.frame(b"\x01")
    talk.ends()


@dialogue(6)
def authenticate_of_version_0(talk: Talk) -> None:
    talk.handshake("PLAIN")
    talk.authenticate(ALICE, 0)
    talk.works()


@dialogue(6)
def authenticate_of_version_1(talk: Talk) -> None:
    talk.handshake("PLAIN")
    talk.authenticate(ALICE, 1)
    talk.works()


@dialogue(7)
def versions_instead_of_a_token(talk: Talk) -> None:
    talk.handshake("PLAIN")
    talk.versions()
    talk.ends()


@dialogue(7)
def a_second_handshake(talk: Talk) -> None:
    talk.handshake("PLAIN")
    talk.handshake("PLAIN")
    talk.ends()


@dialogue(7)
def metadata_instead_of_a_token(talk: Talk) -> None:
    talk.handshake("PLAIN")
    talk.ask(metadata, 12, metadata.Request(topics=[]))
    talk.ends()


@dialogue(7)
def describe_cluster_instead_of_a_token(talk: Talk) -> None:
    talk.handshake("PLAIN")
    talk.ask(describe_cluster, 1, describe_cluster.Request())
    talk.ends()


GROUP_REQUESTS = (
    (find_coordinator, find_coordinator.Request(keys=["g"])),
    (join_group, JoinGroup(None, "g", "m", None, "consumer", [Protocol("range", b"")], 10_000, 10_000, "")),
    (sync_group, SyncGroup(None, "g", "m", None, 1, [("m", b"x")], "consumer", "range")),
    (heartbeat, Heartbeat(None, "g", "m", None, 1)),
    (leave_group, LeaveGroup(None, "g", [LeavingMember("m")])),
    (offset_commit, OffsetCommit(None, "g", "m", None, 1, [CommitPartition("t", 0, 7), CommitPartition("t", 1, 8)])),
    (offset_fetch, [OffsetFetch(None, "g", [("t", [0, 1])])]),
    (offset_delete, OffsetDelete(None, "g", [("t", [0, 1])])),
    (describe_groups, [DescribeGroup(None, "g"), DescribeGroup(None, "h")]),
    (delete_groups, [DeleteGroup(None, "g"), DeleteGroup(None, "h")]),
    (list_groups, ListGroups(None)),
)


def _group_dialogues() -> None:
    """The oldest version and the newest that names topics of each request."""

    def say(talk: Talk, module: ModuleType, version: int, request: Any) -> None:
        talk.handshake("PLAIN")
        talk.ask(module, version, request)
        talk.ends()

    for module, request in GROUP_REQUESTS:
        api: Api = module.API
        for version in sorted({api.versions[0], api.last_by_name} | ({3} if module is find_coordinator else set())):
            name = f"{api.module_name}_v{version}_instead_of_a_token"
            DIALOGUES[name] = 7, partial(say, module=module, version=version, request=request)


_group_dialogues()


@dialogue(9)
def handshake_and_authenticate_again(talk: Talk) -> None:
    talk.handshake("PLAIN")
    talk.authenticate(ALICE)
    talk.authenticate(ALICE)
    talk.handshake("PLAIN")
    talk.works()


@dialogue(11)
def a_frame_above_the_limit(talk: Talk) -> None:
    talk.send(struct.pack(">i", 524_289))
    talk.ends()


@dialogue(11)
def a_frame_at_the_limit(talk: Talk) -> None:
    talk.handshake("PLAIN")
    talk.authenticate(plain("alice", "x" * (524_288 - 100)))
    talk.ends()


@dialogue(11)
def a_frame_of_size_0(talk: Talk) -> None:
    talk.send(struct.pack(">i", 0))
    talk.ends()


@dialogue(11)
def a_frame_of_a_negative_size(talk: Talk) -> None:
    talk.send(struct.pack(">i", -1))
    talk.ends()


@dialogue(11)
def a_large_request_behind_the_last_token(talk: Talk) -> None:
    names = [metadata.Topic(name=f"absent-{number:060}") for number in range(10_000)]
    large = metadata.Request(topics=names, allow_auto_topic_creation=False)
    talk.send(
        talk.request(sasl_handshake, 1, sasl_handshake.Request(mechanism="PLAIN"))
        + talk.request(sasl_authenticate, 2, sasl_authenticate.Request(auth_bytes=ALICE))
        + talk.request(metadata, 12, large)
    )
    talk.hear(sasl_handshake, 1)
    talk.hear(sasl_authenticate, 2)
    talk.hear(metadata, 12)


# --- PLAIN ------------------------------------------------------------------------------------------------------------


def _plain_dialogues() -> None:
    tokens = {
        "wrong_password": plain("alice", "wrong"),
        "unknown_user": plain("nobody", "alice-secret"),
        "its_own_name_as_authorization_id": plain("alice", "alice-secret", "alice"),
        "another_authorization_id": plain("alice", "alice-secret", "bob"),
        "another_authorization_id_and_a_wrong_password": plain("alice", "wrong", "bob"),
        "nothing": b"",
        "one_part": b"alice",
        "two_parts": b"alice\0alice-secret",
        "four_parts": b"\0alice\0alice-secret\0",
        "no_user": plain("", "alice-secret"),
        "no_password": plain("alice", ""),
        "no_utf_8": b"\0alice\0\xff\xfe",
    }

    def made(token: bytes) -> Dialogue:
        def say(talk: Talk) -> None:
            talk.handshake("PLAIN")
            answer = talk.authenticate(token)
            if answer is None or answer.error:
                talk.ends()
            else:
                talk.works()

        return say

    for name, token in tokens.items():
        DIALOGUES[f"plain_with_{name}"] = 13, made(token)


_plain_dialogues()


# --- SCRAM ------------------------------------------------------------------------------------------------------------


def _scram_dialogues() -> None:
    firsts = {
        "unknown_user": (16, b"n,,n=nobody,r=nonce"),
        "junk": (16, b"junk"),
        "nothing": (16, b""),
        "channel_binding_y": (15, b"y,,n=alice,r=nonce"),
        "channel_binding_p": (15, b"p=tls-unique,,n=alice,r=nonce"),
        "its_own_name_as_authorization_id": (15, b"n,a=alice,n=alice,r=nonce"),
        "another_authorization_id": (15, b"n,a=bob,n=alice,r=nonce"),
        "an_extension": (15, b"n,,n=alice,r=nonce,x=y"),
        "a_mandatory_extension": (15, b"n,,m=x,n=alice,r=nonce"),
        "no_nonce": (16, b"n,,n=alice,r="),
        "no_utf_8": (16, b"n,,n=\xff\xfe,r=nonce"),
    }

    def made(token: bytes) -> Dialogue:
        def say(talk: Talk) -> None:
            talk.handshake("SCRAM-SHA-256")
            answer = talk.authenticate(token)
            if answer is None or answer.error:
                talk.ends()

        return say

    for name, (rule, token) in firsts.items():
        DIALOGUES[f"scram_that_begins_with_{name}"] = rule, made(token)


_scram_dialogues()


@dialogue(15)
def scram_256(talk: Talk) -> None:
    talk.scram(mechanism="SCRAM-SHA-256")
    talk.works()


@dialogue(16)
def scram_with_a_wrong_password(talk: Talk) -> None:
    talk.scram(password="wrong", mechanism="SCRAM-SHA-256")
    talk.ends()


def _scram_final(change: Callable[[bytes], bytes]) -> Dialogue:
    def say(talk: Talk) -> None:
        client = ScramClient("SCRAM-SHA-256", "alice", "alice-secret", "nonce")
        talk.handshake("SCRAM-SHA-256")
        first = talk.authenticate(client.respond(b""))
        talk.authenticate(change(client.respond(first.auth_bytes)))
        talk.ends()

    return say


DIALOGUES["scram_that_ends_with_junk"] = 16, _scram_final(lambda _final: b"junk")
DIALOGUES["scram_with_a_wrong_nonce"] = 16, _scram_final(lambda final: final.replace(b"r=nonce", b"r=other"))
DIALOGUES["scram_with_another_channel_binding"] = 15, _scram_final(lambda final: final.replace(b"c=biws", b"c=eSws"))


# --- OAUTHBEARER ------------------------------------------------------------------------------------------------------


def _bearer_dialogues() -> None:
    def tokens() -> dict[str, tuple[int, bytes]]:
        now_s = wall_ms() / 1000
        life = {"iat": now_s - 10, "exp": now_s + 100}
        return {
            "a_good_token": (17, bearer()),
            "its_own_name_as_authorization_id": (17, bearer(authorization_id="alice")),
            "another_authorization_id": (17, bearer(authorization_id="bob")),
            "an_extension": (17, bearer(more="\x01traceId=1")),
            "an_extension_with_a_digit": (17, bearer(more="\x01trace1=1")),
            "an_extension_called_auth": (17, bearer(more="\x01auth=1")),
            "junk": (17, b"junk"),
            "nothing": (17, b""),
            "no_end": (17, bearer()[:-1]),
            "another_scheme": (17, bearer().replace(b"Bearer", b"Basic")),
            "bearer_in_lower_case": (17, bearer().replace(b"Bearer", b"bearer")),
            "no_jwt": (18, bearer("no-token")),
            "an_expired_token": (18, bearer(unsecured(life | {"sub": "alice", "exp": now_s - 1}))),
            "no_subject": (18, bearer(unsecured(life))),
            "an_empty_subject": (18, bearer(unsecured(life | {"sub": ""}))),
            "no_expiry": (18, bearer(unsecured({"sub": "alice", "iat": now_s - 10}))),
            "an_expiry_that_is_text": (18, bearer(unsecured(life | {"sub": "alice", "exp": str(now_s + 100)}))),
            "no_time_of_issue": (20, bearer(unsecured({"sub": "alice", "exp": now_s + 100}))),
            "a_time_of_issue_in_the_future": (20, bearer(unsecured(life | {"sub": "alice", "iat": now_s + 50}))),
            "issued_after_it_expires": (20, bearer(unsecured(life | {"sub": "alice", "iat": now_s + 150}))),
            "a_signature": (20, bearer(unsecured(signature="c2lnbmVk"))),
            "another_algorithm": (20, bearer(unsecured(header={"alg": "RS256"}))),
            "whole_seconds": (20, bearer(unsecured({"sub": "alice", "iat": int(now_s) - 9, "exp": int(now_s) + 100}))),
        }

    def made(name: str) -> Dialogue:
        def say(talk: Talk) -> None:
            talk.handshake("OAUTHBEARER")
            answer = talk.authenticate(tokens()[name][1])
            if answer is not None and answer.auth_bytes:
                talk.authenticate(b"\x01")
                talk.ends()
            elif answer is not None and answer.error:
                talk.ends()
            elif answer is not None:
                talk.heard[-1][-1] = talk.heard[-1][-1] > 90  # about 100 s
                talk.works()

        return say

    for name, (rule, _) in tokens().items():
        DIALOGUES[f"oauthbearer_with_{name}"] = rule, made(name)


_bearer_dialogues()


@dialogue(18)
def a_good_token_after_one_that_was_refused(talk: Talk) -> None:
    talk.handshake("OAUTHBEARER")
    talk.authenticate(bearer("no-token"))
    answer = talk.authenticate(bearer())
    talk.heard[-1][-1] = answer.session_lifetime_ms > 90_000
    talk.works()


@dialogue(18)
def metadata_after_a_token_that_was_refused(talk: Talk) -> None:
    talk.handshake("OAUTHBEARER")
    talk.authenticate(bearer("no-token"))
    talk.ask(metadata, 12, metadata.Request(topics=[]))
    talk.ends()


@dialogue(19)
def a_session_ends_with_its_token(talk: Talk) -> None:
    now_s = wall_ms() / 1000
    talk.handshake("OAUTHBEARER")
    talk.authenticate(bearer(unsecured({"sub": "alice", "iat": now_s - 10, "exp": now_s + 1.6})))
    talk.works()
    time.sleep(2)
    talk.works()


# --- re-authentication ------------------------------------------------------------------------------------------------


@dialogue(31)
def a_session_has_a_lifetime(talk: Talk) -> None:
    talk.scram()
    talk.works()


@dialogue(32)
def the_next_request_after_the_lifetime_closes(talk: Talk) -> None:
    talk.scram()
    time.sleep(SESSION_S + 0.3)
    talk.works()


@dialogue(32)
def bare_tokens_have_a_lifetime_too(talk: Talk) -> None:
    client = ScramClient("SCRAM-SHA-512", "alice", "alice-secret", "nonce")
    talk.handshake("SCRAM-SHA-512", 0)
    talk.frame(client.respond(b""))
    talk.frame(client.respond(talk.hear_token() or b""))
    talk.hear_token()
    time.sleep(SESSION_S + 0.3)
    talk.works()


@dialogue(32)
def a_handshake_after_the_lifetime_is_taken(talk: Talk) -> None:
    talk.scram()
    time.sleep(SESSION_S + 0.3)
    talk.scram()
    talk.works()


@dialogue(33)
def a_client_authenticates_again(talk: Talk) -> None:
    talk.scram()
    talk.scram()
    time.sleep(1.2)
    talk.scram()
    time.sleep(1.2)
    talk.works()


@dialogue(33)
def something_else_within_it(talk: Talk) -> None:
    talk.scram()
    talk.handshake("SCRAM-SHA-512")
    talk.ask(metadata, 12, metadata.Request(topics=[]))
    talk.ends()


@dialogue(33)
def again_with_another_mechanism(talk: Talk) -> None:
    talk.scram()
    talk.handshake("PLAIN")
    talk.authenticate(ALICE)


@dialogue(33)
def again_with_an_unknown_mechanism(talk: Talk) -> None:
    talk.scram()
    talk.handshake("GSSAPI")
    talk.ends()


@dialogue(33)
def again_as_another_user(talk: Talk) -> None:
    talk.scram()
    talk.scram("bob", "bob-secret")
    talk.ends()


@dialogue(33)
def again_with_a_wrong_password(talk: Talk) -> None:
    talk.scram()
    talk.scram(password="wrong")
    talk.ends()


@dialogue(33)
def again_within_a_second(talk: Talk) -> None:
    talk.scram()
    talk.scram()
    talk.handshake("SCRAM-SHA-512")
    talk.works()

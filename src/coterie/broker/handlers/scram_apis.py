"""DescribeUserScramCredentials and AlterUserScramCredentials (S52 and S53)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from coterie.broker.broker_effects import Effects, Work
from coterie.broker.broker_facts import Reporter
from coterie.broker.calls import Call, Handler, Responses
from coterie.broker.handlers.refusals import CLUSTER_DENIED, Refusal
from coterie.broker.maintenance.directory_changes import Changes
from coterie.broker.maintenance.scram_credentials import Credentials, ScramCredentials
from coterie.broker.security.auth_helper import AuthHelper
from coterie.errors import ErrorCode
from coterie.protocol.acls import AclOperation, AclResourceType
from coterie.protocol.apis import alter_user_scram_credentials as alter_apis
from coterie.protocol.apis import describe_user_scram_credentials as describe_apis
from coterie.protocol.sasl_mechanisms import ITERATIONS, MOST_ITERATIONS, ScramCredential
from coterie.storage import LogError
from coterie.structs import DataStruct

MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
Alteration = alter_apis.Deletion | alter_apis.Upsertion
NUMBERS = {name: number for number, name in MECHANISMS.items()}


class ScramApis(DataStruct, frozen=True, eq=False):
    responses: Responses
    auth: AuthHelper
    credentials: ScramCredentials
    changes: Changes
    reporter: Reporter

    def handlers(self) -> Mapping[int, Handler]:
        return {
            describe_apis.API.key: self._describe,
            alter_apis.API.key: self._alter,
        }

    def _describe(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = describe_apis.read_request(frame, at, call.version)
        if self.auth.authorize(call, AclOperation.DESCRIBE, AclResourceType.CLUSTER):
            response = describe_apis.Response(message="", results=describe(request, self.credentials.by_user))
        else:
            refused = [describe_apis.Result(user="", error=CLUSTER_DENIED.error) for _ in request.users or ()]
            response = describe_apis.Response(error=CLUSTER_DENIED.error, results=refused)
        return self.responses.answer(call, response, now_ms)

    def _alter(self, call: Call, frame: bytes, at: int, received_ms: int) -> Effects:
        """Judge it in its turn. It is answered when the disk has it."""
        request = alter_apis.read_request(frame, at, call.version)
        if not self.auth.authorize(call, AclOperation.ALTER, AclResourceType.CLUSTER):
            users = dict.fromkeys(
                [
                    *(deletion.name for deletion in request.deletions),
                    *(upsertion.name for upsertion in request.upsertions),
                ]
            )
            refused = [
                alter_apis.Result(user=user, error=CLUSTER_DENIED.error, message=CLUSTER_DENIED.message)
                for user in users
            ]
            return self.responses.answer(call, alter_apis.Response(results=refused), received_ms)

        def judge(now_ms: int) -> Effects:
            results, credentials = alter(request, self.credentials.by_user)

            def then(outcome: LogError | None, at_ms: int) -> Effects:
                effects: Effects = []
                if outcome is not None:
                    effects.append(self.reporter.trouble(str(outcome), at_ms))
                    for result in results:
                        if not result.error:
                            result.error, result.message = outcome.code, str(outcome)
                response = alter_apis.Response(results=results)
                return [*effects, *self.responses.answer(call, response, at_ms)]

            if credentials == self.credentials.by_user:
                return then(None, now_ms)
            return [Work(self.credentials.replace(credentials), then)]

        self.changes.ask(call, judge)
        return []


def describe(request: describe_apis.Request, credentials: Credentials) -> list[describe_apis.Result]:
    """Return which mechanisms each user has; all users if none is named."""
    asked = [user.name for user in request.users] if request.users else list(credentials)
    times = Counter(asked)
    results = []
    for name in dict.fromkeys(asked):
        of_user = credentials.get(name, {})
        if times[name] > 1:
            refusal = Refusal(
                ErrorCode.DUPLICATE_RESOURCE,
                f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}",
            )
        elif not of_user:
            refusal = Refusal(
                ErrorCode.RESOURCE_NOT_FOUND,
                f"Attempt to describe a user credential that does not exist: {name}",
            )
        else:
            infos = [
                describe_apis.CredentialInfo(mechanism=NUMBERS[mechanism], iterations=one.iterations)
                for mechanism, one in sorted(of_user.items())
            ]
            results.append(describe_apis.Result(user=name, message="", credential_infos=infos))
            continue
        results.append(describe_apis.Result(user=name, error=refusal.error, message=refusal.message))
    return results


def alter(request: alter_apis.Request, credentials: Credentials) -> tuple[list[alter_apis.Result], Credentials]:
    """Return the result for each user, and all credentials that there are then."""
    asked: dict[str, list[Alteration]] = {}
    all_asked: list[Alteration] = [*request.deletions, *request.upsertions]
    for each in all_asked:
        asked.setdefault(each.name, []).append(each)
    new = {user: dict(of_user) for user, of_user in credentials.items()}
    results = []
    for name, of_user in asked.items():
        refusal = next(filter(None, map(_refuse, of_user)), None)
        if refusal is None and len(of_user) > 1:
            refusal = Refusal(
                ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
            )
        if refusal is None:
            refusal = _change(of_user[0], new)
        error, message = (ErrorCode.NONE, None) if refusal is None else refusal
        results.append(alter_apis.Result(user=name, error=error, message=message))
    return results, {user: stored for user, stored in new.items() if stored}


def _refuse(each: Alteration) -> Refusal | None:
    """Return what is wrong with a change. It does not depend on the user."""
    if not each.name:
        return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if each.mechanism not in MECHANISMS:
        return Refusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(each, alter_apis.Deletion):
        return None
    if each.iterations < ITERATIONS:
        return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if each.iterations > MOST_ITERATIONS:
        return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not each.salted_password:
        return Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salted password must not be empty")
    return None


def _change(each: Alteration, credentials: dict[str, dict[str, ScramCredential]]) -> Refusal | None:
    mechanism = MECHANISMS[each.mechanism]
    of_user = credentials.setdefault(each.name, {})
    if isinstance(each, alter_apis.Upsertion):
        salted, salt = bytes(each.salted_password), bytes(each.salt)
        of_user[mechanism] = ScramCredential.of(mechanism, salted, salt, each.iterations)
    elif of_user.pop(mechanism, None) is None:
        return Refusal(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    return None

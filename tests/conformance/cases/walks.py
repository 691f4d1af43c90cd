"""Random walks: three members do what clients do, and sometimes what they should not. A seed in, a case out."""

from __future__ import annotations

from random import Random  # noqa: TID251  a seed in, a case out

from conformance.cases.family import Family
from conformance.script import Case

__all__ = ["FAMILIES"]

WALKS = 400
LONGEST = 40

_WHAT = {"join": 10, "sync": 8, "heartbeat": 4, "leave": 2.5, "commit": 4, "fetch": 1, "describe": 2.5, "delete": 0.5,
         "forget": 0.5, "list": 0.3}  # fmt: skip
_LISTS = ("range", "range,sticky", "sticky,range", "range,roundrobin", "range:tu,sticky", "sticky")


class _Walk:
    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.instances = {"c": "north"} if self.rng.random() < 0.5 else {}
        self.usual = self.rng.choice(_LISTS[:4])

    def steps(self) -> tuple[str, ...]:
        return tuple(self._step() for _ in range(self.rng.randint(LONGEST // 2, LONGEST)))

    def _step(self) -> str:
        (what,) = self.rng.choices(list(_WHAT), list(_WHAT.values()))
        return getattr(self, f"_{what}")(self.rng.choice("aaabbbccc")).strip()  # type: ignore[no-any-return]

    def _rarely(self, *words: str, chance: float = 0.06) -> str:
        return f" {self.rng.choice(words)}" if self.rng.random() < chance else ""

    def _instance(self, who: str) -> str:
        if self.rng.random() < 0.05:
            return self.rng.choice((" instance=west", "", " instance=north"))
        return f" instance={self.instances[who]}" if who in self.instances else ""

    def _join(self, who: str) -> str:
        instance = self._instance(who)
        version = 9 if self.rng.random() < 0.7 else self.rng.choice((3, 4, 5, 6, 8))
        if version < 5 and instance:
            version = 9
        offered = self.usual if self.rng.random() < 0.8 else self.rng.choice(_LISTS)
        member = " member=none" if self.rng.random() < 0.15 else self._rarely("member=ghost", "member=a", "member=b")
        wrong = self._rarely("session=5", "type=connect", "type=none", "rebalance=60001", chance=0.05)
        return f"{who} join v{version} protocols={offered}{instance}{member}{wrong}"

    def _sync(self, who: str) -> str:
        instance = self._instance(who)
        assign = self._rarely("assign=", "assign=a", "assign=b,ghost", chance=0.15)
        member = self._rarely("member=ghost", "generation=older", "generation=newer")
        if self.rng.random() < 0.3:
            return f"{who} sync v{3 if instance else self.rng.randint(0, 4)}{instance}{assign}{member}"
        first = self.usual.split(",")[0].split(":")[0]
        name = "" if first == "range" else f" protocol={first}"
        return f"{who} sync{instance}{name}{assign}{member}{self._rarely('type=connect', 'type=null', chance=0.04)}"

    def _heartbeat(self, who: str) -> str:
        instance = self._instance(who)
        version = self.rng.choice((3, 4)) if instance else self.rng.randint(0, 4)
        return f"{who} heartbeat v{version}{instance}{self._rarely('member=ghost', 'generation=older', 'member=none')}"

    def _leave(self, who: str) -> str:
        if self.rng.random() < 0.3:
            return f"{who} leave v{self.rng.randint(0, 2)}"
        members = self.rng.choice(("own", "own", "own", "own,a", "none@north", "a,b", "own@north", "ghost,own"))
        return f"{who} leave v{self.rng.randint(3, 5)} members={members}"

    def _commit(self, who: str) -> str:
        instance = self._instance(who)
        version = self.rng.randint(7 if instance else 2, 10)
        at = f"t:{self.rng.randint(0, 1)}:{self.rng.randint(0, 999)}"
        odd = self._rarely("ghost:0:1", "u:0:5", "t:7:1", "t:0:1:long", chance=0.2).strip()
        nobody = " generation=-1 member=none" if self.rng.random() < 0.15 else ""
        wrong = self._rarely("generation=older", "generation=-1", "generation=newer") if not nobody else ""
        return f"{who} commit v{version}{'' if nobody else instance}{nobody}{wrong} at={at}{odd and ',' + odd}"

    def _fetch(self, _who: str) -> str:
        return f"z fetch v{self.rng.randint(2, 10)} topics={self.rng.choice(('all', 't:0:1', 't:1,u:0'))}"

    def _describe(self, _who: str) -> str:
        return f"z describe v{self.rng.randint(0, 6)}"

    def _delete(self, _who: str) -> str:
        return f"z delete v{self.rng.randint(0, 2)}"

    def _forget(self, _who: str) -> str:
        return f"z forget topics={self.rng.choice(('t:0', 'u:0', 't:0:1,u:0'))}"

    def _list(self, _who: str) -> str:
        return f"z list v{self.rng.randint(0, 5)}"


FAMILIES = [
    Family("random walks", "plain", tuple(Case(f"walk {seed}", _Walk(seed).steps()) for seed in range(1, WALKS + 1)))
]

"""Playing a grid: each row is done, and what is heard and the state of the group are compared with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coterie.errors import CoterieError, ErrorCode
from coterie.stories.grid import Step, read, show
from coterie.stories.story import Actor, Story

__all__ = ["check_story"]


def check_story(text: str, **settings: Any) -> Story:
    """Play the grid. Writes wait for `(on disk)`. A difference prints the grid that was seen."""
    story = Story(**settings)
    story.hold_writes()
    for wanted in read(text):
        _play(story, wanted)
        seen = story.steps[-1]
        if seen != wanted:
            raise AssertionError(
                f"the story differs in its last row:\n{show(story.steps)}\n\nit should have been:\n{show([wanted])}"
            )
    return story


def _play(story: Story, step: Step) -> None:
    if step.at_ms < story.world.now_ms:
        raise CoterieError(f"time goes forward: {step.at_ms} ms after {story.world.now_ms} ms")
    passed_ms = step.at_ms - story.world.now_ms
    if not step.says:
        story.advance(ms=passed_ms)
        return
    story.world.advance(passed_ms)  # what rings on the way is heard in this row
    verb, *words = step.says.split()
    if step.says in _NEWS:
        _NEWS[step.says](story)
    elif verb in _VERBS:
        _VERBS[verb](story.member(step.who), dict(_option(word) for word in words))
    else:
        known = ", ".join([*_VERBS, *_NEWS])
        raise CoterieError(f"nobody can {step.says!r}; what can be said: {known}")


def _option(word: str) -> tuple[str, Any]:
    name, given, value = word.partition("=")
    if not given:
        return name, True
    if name in {"protocols", "topics"}:
        return name, tuple(value.split(","))
    if name in {"session", "rebalance", "gen", "retention", "producer"}:
        return name, int(value)
    return name, value


def _sync(actor: Actor, options: dict[str, Any]) -> None:
    flags = {name: options.pop(name) for name in list(options) if name in {"gen", "id", "instance", "type", "protocol"}}
    actor.syncs({name: bytes.fromhex(data) for name, data in options.items()}, **flags)


def _commit(actor: Actor, options: dict[str, Any]) -> None:
    offsets = {name: int(options.pop(name)) for name in list(options) if ":" in name}
    actor.commits(offsets, **options)


_VERBS: Mapping[str, Callable[[Actor, dict[str, Any]], object]] = {
    "join": lambda actor, options: actor.joins(**options),
    "sync": _sync,
    "beat": lambda actor, options: actor.beats(**options),
    "leave": lambda actor, options: actor.leaves(**options),
    "commit": _commit,
    "fetch": lambda actor, options: actor.fetches(**options),
    "delete": lambda actor, _options: actor.deletes_group(),
}

_NEWS: Mapping[str, Callable[[Story], object]] = {
    "(on disk)": lambda story: story.end_writes(),
    "(disk fails)": lambda story: story.end_writes(ErrorCode.KAFKA_STORAGE_ERROR),
    "(coordinator moves)": lambda story: story.move_coordinator(),
    "(crash)": lambda story: story.crash(),
}

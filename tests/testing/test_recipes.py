"""Recipes of docs/testing-recipes.md that the page itself cannot run: the HTTP of other languages, the container."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from testing.consumers import Polling, ours
from testing.test_http_controls import controlled

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/testing-recipes.md").read_text()
ASKED = re.compile(
    r'ask\((?:t, )?"(?P<method>[A-Z]+)", "(?P<path>[^"]+)", (?:"(?P<java>(?:[^"\\]|\\.)*)"|`(?P<go>[^`]*)`)\)'
)


@pytest.mark.parametrize(("language", "count"), [("java", 7), ("go", 8)])
def test_what_a_recipe_asks_of_the_controls_is_answered(language: str, count: int) -> None:
    """The consumer is ours; it begins when the recipe first asks for its group, and is closed when it must be empty."""
    block = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    asked = list(ASKED.finditer(block[1]))
    assert len(asked) == count == block[1].count("ask(") - 1  # one is its definition
    consumer: Polling | None = None
    with controlled() as (controls, client):
        for one in asked:
            if one["path"].startswith("/groups/") and consumer is None:
                consumer = ours(controls.broker, "a")
            if one["path"].endswith("wait-empty") and consumer is not None:
                consumer.stop()
            body = (one["java"] or one["go"] or "").replace('\\"', '"').encode()
            answer = client.ask(one["method"], one["path"], body or None)
            assert answer.status == 200, (one[0], answer)
        if consumer is not None:
            consumer.stop()


@pytest.mark.parametrize(
    ("given", "listeners", "options"),
    [
        ({}, "PLAINTEXT://0.0.0.0:9092 PLAINTEXT://localhost:9092", "--memory"),
        (
            {"KAFKA_ADVERTISED_LISTENERS": "A://broker:1,B://[::1]:2,C://:3"},
            "A://0.0.0.0:1,B://0.0.0.0:2,C://0.0.0.0:3 A://broker:1,B://[::1]:2,C://:3",
            "--memory",
        ),
        (
            {"KAFKA_LISTENERS": "A://:1", "COTERIE_CONTROLS_TOKEN": "secret"},
            "A://:1 ",
            "--test-controls --controls 0.0.0.0:9099",
        ),
    ],
)
def test_the_script_of_the_container_starts_the_broker(
    tmp_path: Path, given: dict[str, str], listeners: str, options: str
) -> None:
    coterie = tmp_path / "coterie"
    coterie.write_text('#!/bin/sh\necho "$KAFKA_LISTENERS ${KAFKA_ADVERTISED_LISTENERS:-}"\necho "$@"\n')
    coterie.chmod(0o755)
    script = ROOT / "examples/docker/entrypoint.sh"
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", **given}
    ran = subprocess.run([script, "--nodes", "2"], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == f"{listeners}\nserve {options} --nodes 2\n"


def test_the_container_has_what_the_page_says() -> None:
    text = (ROOT / "examples/docker/Dockerfile").read_text()
    assert "examples/docker/entrypoint.sh /entrypoint.sh" in text and "EXPOSE 9092 9099" in text
    for source in re.findall(r"^COPY (?:--chmod=\d+ )?([a-z]\S*) /", text, re.MULTILINE):
        assert (ROOT / source).exists()

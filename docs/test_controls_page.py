"""The page of the test controls, made from the table of their operations."""

from __future__ import annotations

from coterie.testing.http_controls.operations import OPERATIONS, Operation

__all__ = ["test_controls"]

ABOUT = """# Test controls over HTTP

Made from `coterie.testing.http_controls.operations` by `make docs`. `coterie serve --test-controls` serves them; \
[testing-recipes.md](testing-recipes.md) shows how tests in Java and Go use them. `GET /openapi.json` describes them \
as OpenAPI 3.1, with all types.

- The parameters of a `GET` are in the query, those of all else in the body, as a JSON object. In bold: those that \
have to be given.
- Keys and values of records are text. Bytes that are no UTF-8 are `{"base64": "..."}`, in both directions.
- A problem is another status than 200, with `{"error": ..., "message": ...}`: 400 for what is not allowed, 404 for \
what there is not, 409 for what did not happen: a wait timed out, or a fault never fired. The message says what did \
happen. 503: the broker is down, after a crash that the test asked for.
- A fault begins at once. Its `number` in the answer is its name from then on. All faults end with `DELETE /faults`.

| | parameters | |
|---|---|---|"""


def test_controls() -> str:
    return "\n".join([ABOUT, *map(_line, OPERATIONS)]) + "\n"


test_controls.__test__ = False  # type: ignore[attr-defined]  # it is no test


def _line(one: Operation) -> str:
    others = [each for name, each in one.parameters.items() if name not in one.in_path]
    names = ", ".join(f"**{each.name}**" if each.is_required else each.name for each in others)
    what = " ".join(one.doc.partition("\n\n")[0].split())
    return f"| `{one.method} {one.path}` | {names} | {what} |"

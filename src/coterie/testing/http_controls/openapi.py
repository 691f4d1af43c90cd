"""The OpenAPI description of the test controls, made from the table of operations."""

from __future__ import annotations

from functools import cache
from typing import Any

from coterie.testing.http_controls.json_values import schema_of, write
from coterie.testing.http_controls.operations import OPERATIONS, Operation, Parameter
from coterie.version import __version__

_PROBLEM = {
    "type": "object",
    "description": "What went wrong: the name of the error, and a text.",
    "properties": {"error": {"type": "string"}, "message": {"type": "string"}},
    "required": ["error", "message"],
}
_PROBLEMS = {
    "400": "The request is not allowed: a parameter is missing, unknown or wrong. Nothing was done.",
    "401": "The token is missing or wrong.",
    "409": "It did not happen: a wait timed out, or a fault never fired. The text says what did happen.",
}


@cache
def description() -> dict[str, Any]:
    """Return the description, as OpenAPI 3.1 has it."""
    components: dict[str, Any] = {"Problem": _PROBLEM}
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _described(operation, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Coterie test controls",
            "version": __version__,
            "description": "Controls a broker under test: `coterie serve --test-controls`.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _described(operation: Operation, components: dict[str, Any]) -> dict[str, Any]:
    first, _, more = operation.doc.partition("\n\n")
    in_path = operation.in_path
    others = [one for one in operation.parameters.values() if one.name not in in_path]
    listed = [_listed(operation.parameters[name], "path", components) for name in in_path]
    described: dict[str, Any] = {"operationId": operation.name, "summary": " ".join(first.split())}
    if more:
        described["description"] = more
    if operation.method == "GET":
        listed += [_listed(one, "query", components) for one in others]
    elif others:
        needed = [one.name for one in others if one.is_required]
        schema = {
            "type": "object",
            "properties": {one.name: _schema(one, components) for one in others},
            **({"required": needed} if needed else {}),
            "additionalProperties": False,
        }
        described["requestBody"] = {"required": bool(needed), "content": {"application/json": {"schema": schema}}}
    if listed:
        described["parameters"] = listed
    statuses = [status for status in _PROBLEMS if status != "409" or operation.can_fail]
    described["responses"] = {
        "200": {
            "description": "What was asked for.",
            "content": {"application/json": {"schema": schema_of(operation.returns, components)}},
        },
        **{status: _problem(_PROBLEMS[status]) for status in statuses},
    }
    return described


def _listed(one: Parameter, where: str, components: dict[str, Any]) -> dict[str, Any]:
    required = {"required": True} if where == "path" or one.is_required else {}
    more = {"description": one.doc} if one.doc else {}
    return {"name": one.name, "in": where, **required, **more, "schema": schema_of(one.kind, components)}


def _schema(one: Parameter, components: dict[str, Any]) -> dict[str, Any]:
    schema = schema_of(one.kind, components)
    if one.doc:
        schema = {**schema, "description": one.doc}
    if not one.is_required and one.default is not None:
        schema = {**schema, "default": write(one.default)}
    return schema


def _problem(text: str) -> dict[str, Any]:
    return {
        "description": text,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }

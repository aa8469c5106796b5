"""The OpenAPI description of the JSON API, made of its tables."""

from __future__ import annotations

import re
from typing import Final

from kraft.http import writes
from kraft.http.api import BASE, LIVE, ROUTES, Json, Route

WRITES: Final = f"{BASE}/writes"
_ANSWERS: Final = {
    "200": "as asked",
    "400": "a wrong parameter",
    "401": "no login",
    "403": "not allowed",
    "404": "there is none",
    "503": "a broker does not answer",
}


def openapi(version: str) -> Json:
    """OpenAPI 3.1."""
    paths: dict[str, Json] = {each.path: {"get": _operation(each)} for each in ROUTES}
    paths[LIVE] = {
        "get": {
            "summary": "Server-sent events: `cluster` once a second, `events` when something happens.",
            "responses": {"200": {"description": "the stream", "content": {"text/event-stream": {}}}},
        }
    }
    paths[WRITES] = {
        "get": {
            "summary": "What may be written here, and the token for it.",
            "responses": _responses(),
        }
    }
    for each in writes.ROUTES:
        paths.setdefault(each.path, {})["post"] = _operation(each)
    return {
        "openapi": "3.1.0",
        "info": {"title": "kraft", "version": version, "description": "What a node knows of its cluster."},
        "paths": paths,
        "components": {"securitySchemes": {"basic": {"type": "http", "scheme": "basic"}}},
        "security": [{"basic": []}, {}],
    }


def _operation(route: Route) -> Json:
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]
    in_query = [
        {"name": name, "in": "query", "description": meaning, "schema": {"type": "string"}}
        for name, meaning in (route.query or {}).items()
    ]
    return {"summary": route.summary, "parameters": [*in_path, *in_query], "responses": _responses()}


def _responses() -> Json:
    return {
        status: {"description": meaning, "content": {"application/json": {}}}
        for status, meaning in _ANSWERS.items()
    }

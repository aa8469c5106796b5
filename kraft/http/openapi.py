"""The OpenAPI description of what a node answers over HTTP, but for the console's files: made of tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kraft.http import writes
from kraft.http.api import BASE, LIVE, ROUTES, Json, Route
from kraft.metrics.metric import Style

WRITES: Final = f"{BASE}/writes"
OPENAPI: Final = "/api/openapi.json"
STATUS, READY, METRICS = "/status", "/ready", "/metrics"
OPEN: Final[Mapping[str, Json]] = {
    STATUS: {
        "summary": "The node's own view: roles, quorum, partitions, listeners, limits. For scripts.",
        "responses": {"200": {"description": "as asked", "content": {"application/json": {}}}},
    },
    READY: {
        "summary": "Whether clients can be sent here. For probes.",
        "responses": {
            "200": {"description": "the broker is unfenced", "content": {"application/json": {}}},
            "503": {"description": "it is not", "content": {"application/json": {}}},
        },
    },
    METRICS: {
        "summary": "The metrics, for Prometheus.",
        "parameters": [
            {
                "name": "names",
                "in": "query",
                "description": f"whose names they have: {', '.join(Style)}",
                "schema": {"type": "string", "enum": list(Style), "default": Style.STRIMZI},
            }
        ],
        "responses": {
            "200": {"description": "OpenMetrics", "content": {"application/openmetrics-text": {}}},
            "400": {"description": "no such names", "content": {"application/json": {}}},
        },
    },
}
"""Paths that are read by GET, without a login."""

_ANSWERS: Final = {
    "200": "as asked",
    "400": "a wrong parameter",
    "401": "no login",
    "403": "not allowed",
    "404": "there is none",
    "429": "over a quota: Retry-After says when again",
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
    paths |= {path: {"get": {**operation, "security": [{}]}} for path, operation in OPEN.items()}
    paths[OPENAPI] = {
        "get": {
            "summary": "This description.",
            "responses": {"200": {"description": "OpenAPI 3.1", "content": {"application/json": {}}}},
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

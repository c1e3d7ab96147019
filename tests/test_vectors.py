"""Requests and answers recorded from the real Seldon wrapper and a real Triton, over both fronts."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

import v2_models
import vector_models
from prefork.testing import Client
from vectors import same_json

VECTORS = Path(__file__).parent / "vectors"
OTHER_PARTS = ("/config", "/stats", "/v2/repository/index", "/v2/logging", "/trace/")
"""Paths whose answers need Triton's own repository; tests/test_repository_triton.py reads its configurations."""


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (VECTORS / name).read_text().splitlines()]


def v2_lines() -> list[dict[str, Any]]:
    return [line for line in lines("v2.jsonl") if not any(part in line["request"]["path"] for part in OTHER_PARTS)]


def expected(line: dict[str, Any]) -> dict[str, Any]:
    """What Prefork answers: the recorded answer with what the line's `prefork` says laid over it."""
    ours = line.get("prefork")
    wanted = dict(line["response"])
    if isinstance(ours, dict) and "status" in ours:
        wanted["status"] = ours["status"]
        wanted["body"] = json.dumps(ours["body"]) if "body" in ours else None
    return wanted


def ask(client: Client, request: dict[str, Any], body: bytes) -> httpx.Response:
    headers = dict(request["headers"])
    if request.get("content_type"):
        headers["content-type"] = request["content_type"]
    return client.request(request["method"], request["path"], content=body, headers=headers)


@pytest.mark.parametrize("line", lines("seldon_v1.jsonl"), ids=lambda line: line["id"])
def test_seldon(line: dict[str, Any], front: str):
    """Prefork answers what the Seldon wrapper answered, or what the line says that Prefork answers instead."""
    with Client(vector_models.build(line["model"]), front=front) as client:
        response = ask(client, line["request"], (line["request"]["body"] or "").encode())
    if "prefork" in line and line["prefork"] is None:
        assert response.status_code < 500
        return
    wanted = expected(line)
    assert response.status_code == wanted["status"], response.text
    if response.status_code >= 400:
        assert is_seldon_error(response.json())
    elif response.headers["content-type"] == "application/json":
        assert same_json(response.text, wanted["body"], line["id"])
    else:
        assert response.text == wanted["body"]


def is_seldon_error(body: Any) -> bool:
    status = body["status"]
    return set(status) == {"code", "info", "reason", "status"} and status["code"] == -1 and status["status"] == 1


@pytest.mark.parametrize("line", v2_lines(), ids=lambda line: line["id"])
def test_v2(line: dict[str, Any], front: str):
    """Prefork answers what Triton answered, or what the line says that Prefork answers instead."""
    name = line["request"]["path"].removeprefix("/v2/models/").split("/")[0]
    served = name if name in ("add", "count", "two") or name.startswith("echo_") else "add"
    with Client(v2_models.model(served), front=front, name=served) as client:
        response = ask(client, line["request"], raw(line["request"]["body"]))
    check_v2(line, response)


def check_v2(line: dict[str, Any], response: httpx.Response) -> None:
    """Whether that is what the line wants."""
    wanted = expected(line)
    assert response.status_code == wanted["status"], response.text
    if response.status_code >= 400:
        assert isinstance(response.json()["error"], str)
        return
    check_v2_body(line, response)


def raw(body: dict[str, str]) -> bytes:
    return base64.b64decode(body["base64"]) if "base64" in body else body["text"].encode()


def check_v2_body(line: dict[str, Any], response: httpx.Response) -> None:
    wanted = raw(line["response"]["body"])
    length = response.headers.get("inference-header-content-length")
    if length is not None:
        recorded = int(line["response"]["headers"]["inference-header-content-length"])
        assert same_json(response.content[: int(length)].decode(), wanted[:recorded].decode(), line["id"])
        assert response.content[int(length) :] == wanted[recorded:]
    elif line["id"] == "infer/nan":
        assert response.json()["outputs"][0]["data"] == [None, 2.0, 3.0, 4.0]
    elif line["id"] == "two/order":
        names = {output["name"]: output for output in json.loads(wanted)["outputs"]}
        assert {output["name"]: output for output in response.json()["outputs"]} == names
    elif response.headers["content-type"].startswith("application/json"):
        assert same_json(response.text, wanted.decode(), line["id"])
    else:
        assert response.content == wanted

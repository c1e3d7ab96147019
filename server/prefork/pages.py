"""The docs page: one self-contained HTML file that fetches nothing but the server's own openapi.json.

Whatever a model says of itself is untrusted text: it is escaped, and the page's policy runs its own script alone, by
its hash. Links are relative, so that the page works behind a path prefix.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache
from html import escape
from pathlib import Path

from prefork.openapi import RouteDoc
from prefork.payload import ModelSpec, TensorSpec

_FILE = Path(__file__).with_name("docs.html")
_HOLE = re.compile(r"\{\{(\w+)\}\}")
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)


def docs_page(spec: ModelSpec, routes: Iterable[RouteDoc], *, server_version: str) -> bytes:
    """The page as UTF-8: the model, its inputs and outputs, the endpoints, and a box to try them on the sample."""
    holes = {
        "policy": _policy(),
        "model": escape(spec.name),
        "version": escape(spec.version),
        "platform": escape(spec.platform),
        "server": escape(server_version),
        "first": "/generate_stream" if spec.streams else "/infer",
        "signature": _signature(spec),
        "endpoints": _endpoints(routes),
    }
    return _HOLE.sub(lambda hole: holes[hole[1]], _file()).encode()


@lru_cache(maxsize=1)
def _file() -> str:
    return _FILE.read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _policy() -> str:
    script = _SCRIPT.search(_file())
    assert script is not None
    digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; connect-src 'self'; script-src 'sha256-{digest}'"


def _signature(spec: ModelSpec) -> str:
    if spec.inputs is None:
        return "<p>Takes one tensor of any shape, with or without column names, or any JSON.</p>"
    tensors = [("input", tensor) for tensor in spec.inputs] + [("output", tensor) for tensor in spec.outputs or ()]
    rows = [[side, _code(tensor.name), escape(tensor.datatype or "any"), _shape(tensor)] for side, tensor in tensors]
    return _table(["", "Name", "Datatype", "Shape"], rows)


def _shape(tensor: TensorSpec) -> str:
    shape = "any" if tensor.shape is None else f"[{', '.join(map(str, tensor.shape))}]"
    return f"{shape}, optional" if tensor.optional else shape


def _endpoints(routes: Iterable[RouteDoc]) -> str:
    rows = [[escape(", ".join(route.methods)), _code(route.path), escape(route.summary)] for route in routes]
    return _table(["Methods", "Path", "What it does"], rows)


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"


def _table(head: list[str], rows: list[list[str]]) -> str:
    """A table of cells that are HTML already."""
    first = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    rest = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>\n" for row in rows)
    return f'<div class="wide"><table>\n<thead><tr>{first}</tr></thead>\n<tbody>\n{rest}</tbody></table></div>'

"""The docs page."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from prefork.openapi import RouteDoc
from prefork.pages import docs_page
from prefork.payload import ModelSpec, TensorSpec

EVIL = "</title><script>alert(1)</script><img src=x onerror=\"alert('2')\">&amp;{{endpoints}}"

SPEC = ModelSpec(
    "iris",
    version="3",
    inputs=(TensorSpec("FP32", (-1, 4), "sepal"), TensorSpec("", None, "threshold", optional=True)),
    outputs=(TensorSpec("INT64", (-1,), "species"),),
)
ROUTES = [
    RouteDoc("/v2/models/{model}/infer", ("POST",), "v2", "Inference."),
    RouteDoc("/predict", ("GET", "POST"), "seldon", "Seldon's predict."),
]


class Page(HTMLParser):
    """What a browser would see: tags with their attributes, and text by the tag around it."""

    def __init__(self, page: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.feed(page.decode())
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "input"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def text(self, *tags: str) -> list[str]:
        return [data for tag, data in self.texts if tag in tags and data.strip()]


def page(spec: ModelSpec = SPEC, routes: list[RouteDoc] = ROUTES) -> Page:
    return Page(docs_page(spec, routes, server_version="1.2.3"))


def test_it_shows_the_model():
    """The page tells the model's name and version and the server's."""
    found = page()
    assert found.text("title", "h1") == ["iris", "iris"]
    assert "version 3" in found.text("div")[0]
    assert any("Prefork 1.2.3" in text for text in found.text("div"))


def test_it_shows_the_signature():
    """Inputs and outputs are a table of names, datatypes and shapes."""
    cells = page().text("td", "code")
    assert cells[:12] == [
        *("input", "sepal", "FP32", "[-1, 4]"),
        *("input", "threshold", "any", "any, optional"),
        *("output", "species", "INT64", "[-1]"),
    ]


def test_a_model_without_a_signature_is_told():
    """A model that takes anything has a sentence instead of the table."""
    assert any("any shape" in text for text in page(ModelSpec("m")).text("p"))


def test_it_lists_the_endpoints():
    """Every route is listed with its methods, path and summary."""
    cells = page().text("td", "code")
    assert cells[12:] == [
        *("POST", "/v2/models/{model}/infer", "Inference."),
        *("GET, POST", "/predict", "Seldon's predict."),
    ]


@pytest.mark.parametrize(("streams", "first"), [(False, "/infer"), (True, "/generate_stream")])
def test_it_opens_on_the_endpoint_that_suits_the_model(streams, first):
    """The try-it box begins with inference, or with the stream for a model that streams."""
    (form,) = page(ModelSpec("m", streams=streams)).all("form")
    assert form["data-first"] == first


def test_untrusted_text_stays_text():
    """Names, versions and summaries are shown as they are and never become markup, a script or a hole of the page."""
    spec = ModelSpec(EVIL, EVIL, EVIL, inputs=(TensorSpec(EVIL, (1,), EVIL),))
    found = page(spec, [RouteDoc("/" + EVIL, (EVIL,), "v2", EVIL)])
    plain = page()
    assert len(found.all("script")) == len(plain.all("script")) == 1
    assert found.all("img") == []
    assert found.text("title", "h1") == [EVIL, EVIL]
    assert found.text("code") == [EVIL, "/" + EVIL]
    assert found.text("td") == ["input", EVIL, "[1]", EVIL, EVIL]


def test_it_runs_its_own_script_and_fetches_from_its_own_server_only():
    """The page's policy allows the one script in it, by hash, and requests to its own server; nothing else."""
    found = docs_page(SPEC, ROUTES, server_version="1.2.3").decode()
    (script,) = re.findall(r"<script>(.*?)</script>", found, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policies = [meta for meta in page().all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert [meta["content"] for meta in policies] == [
        f"default-src 'none'; style-src 'unsafe-inline'; connect-src 'self'; script-src 'sha256-{digest}'"
    ]


def test_it_is_one_file():
    """Nothing is loaded from elsewhere: no sources, no links but relative ones, no address in it."""
    found = page()
    assert [a["href"] for a in found.all("a")] == ["openapi.json"]
    assert found.all("link") == []
    assert not any("src" in attributes for _, attributes in found.tags)
    text = docs_page(SPEC, ROUTES, server_version="1.2.3").decode()
    assert "http://" not in text
    assert "https://" not in text
    assert "@import" not in text


def test_it_can_be_used_without_a_mouse():
    """Each field has a label, and every control is one that the keyboard reaches by itself."""
    found = page()
    labelled = {label["for"] for label in found.all("label")}
    fields = [found.all(tag) for tag in ("input", "select", "textarea", "pre")]
    assert {field["id"] for group in fields for field in group} == labelled
    assert not any(name.startswith("on") for _, attributes in found.tags for name in attributes)


def test_it_follows_the_readers_colours():
    """Dark and light follow the reader's own setting."""
    text = docs_page(SPEC, ROUTES, server_version="1.2.3").decode()
    assert "prefers-color-scheme: dark" in text
    assert "color-scheme: light dark" in text

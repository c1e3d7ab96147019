"""Who may change what the server does, over HTTP."""

from __future__ import annotations

import logging

import pytest

from prefork import admin
from prefork.errors import Forbidden, SettingError, Unauthorized
from prefork.http import Request
from prefork.settings import Settings, load
from prefork.testing import Client

PATH = "/v2/workers/recycle"
TOKEN = "s3cr3t, and a blank"


class Model:
    def predict(self, X, names=None):
        return X


@pytest.fixture
def lines():
    """What is logged for operators; the logger of a server does not hand its lines on."""
    found = []

    class Handler(logging.Handler):
        def emit(self, record):
            found.append(record.getMessage())

    handler, log = Handler(), logging.getLogger("prefork.admin")
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield found
    log.removeHandler(handler)
    log.setLevel(before)


def bearer(token, scheme="Bearer"):
    return {"Authorization": f"{scheme} {token}".encode()}


def test_without_a_token_nobody_may(front, lines):
    """403 for everybody, with what to set; a token that somebody sends makes no difference."""
    with Client(Model, front) as client:
        for headers in ({}, bearer(""), bearer("anything")):
            answer = client.post(PATH, headers=headers)
            assert answer.status_code == 403
            assert "PREFORK_ADMIN_TOKEN" in answer.json()["error"]
    assert lines == []


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer(""),
        bearer(TOKEN[:-1]),
        bearer(TOKEN + "x"),
        bearer(TOKEN.upper()),
        bearer(TOKEN, "Basic"),
        {"Authorization": TOKEN.encode()},
        {"X-Token": TOKEN.encode()},
    ],
    ids=["none", "empty", "shorter", "longer", "case", "scheme", "bare", "elsewhere"],
)
def test_with_a_wrong_token_nobody_may(front, lines, headers):
    """401 that says which scheme it has to be, and nothing of the token."""
    with Client(Model, front, admin_token=TOKEN) as client:
        answer = client.post(PATH, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert TOKEN not in answer.text
    assert lines == []


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_with_the_token_an_operator_may(front, lines, scheme):
    """The request goes through, and is one line in the log. Here there is nobody to replace anybody: 503."""
    with Client(Model, front, admin_token=TOKEN) as client:
        answer = client.post(PATH, headers=bearer(TOKEN, scheme))
        assert answer.status_code == 503
        assert "serves by itself" in answer.json()["error"]
    assert lines == [f"operator: POST '{PATH}'"]


def test_any_letters_and_no_blanks_around_them(lines):
    """A token may have letters of any alphabet; blanks around it do not count, and blanks alone are none."""
    request = Request("POST", PATH, b"", {b"authorization": "Bearer  schlüssel ".encode()}, ())
    admin.check(request, Settings(admin_token=" schlüssel\n"))
    assert len(lines) == 1
    with pytest.raises(Unauthorized):
        admin.check(request, Settings(admin_token="schlussel"))
    with pytest.raises(Forbidden):
        admin.check(request, Settings(admin_token=" \n"))


def test_no_path_can_forge_a_line(lines):
    """A path with an end of line in it is one line in the log all the same."""
    request = Request("POST", "/v2/repository/models/a\nb/load", b"", {b"authorization": b"Bearer a"}, ())
    admin.check(request, Settings(admin_token="a"))
    assert "\n" not in lines[0]


def test_a_get_changes_nothing(front):
    """A link that somebody follows has no effect: 405."""
    with Client(Model, front, admin_token=TOKEN) as client:
        assert client.get(PATH, headers=bearer(TOKEN)).status_code == 405


def test_refusals_are_counted_by_their_kind(front):
    """Whoever tries tokens is seen in the metrics."""
    with Client(Model, front, admin_token=TOKEN) as client:
        client.post(PATH)
        assert 'prefork_errors_total{kind="Unauthorized"} 1.0' in client.get("/metrics").text
    with Client(Model, front) as client:
        client.post(PATH)
        assert 'prefork_errors_total{kind="Forbidden"} 1.0' in client.get("/metrics").text


def test_the_token_is_read_from_a_file(tmp_path):
    """`admin_token_file` holds it, blanks around it aside."""
    path = tmp_path / "token"
    path.write_text(f"\n  {TOKEN}\n")
    variables = {"PREFORK_ADMIN_TOKEN_FILE": str(path)}
    assert load({}, variables, tmp_path).admin_token == TOKEN
    assert load({"admin_token_file": str(path)}, {"PREFORK_ADMIN_TOKEN": "other"}, tmp_path).admin_token == TOKEN
    (tmp_path / "prefork.yaml").write_text(f"admin_token_file: {path}\n")
    assert load({}, {"PREFORK_ADMIN_TOKEN": "other"}, tmp_path).admin_token == "other"
    assert load({}, {}, tmp_path).admin_token == TOKEN


@pytest.mark.parametrize("text", [None, "", " \n"])
def test_a_file_without_a_token_is_refused(tmp_path, text):
    """A file that is missing or empty ends the start with one line: an operator who gave one means to be let in."""
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SettingError) as refused:
        load({"admin_token_file": str(path)}, {}, tmp_path)
    assert str(refused.value).startswith(f"admin_token_file: {path}: ")
    assert "\n" not in str(refused.value)

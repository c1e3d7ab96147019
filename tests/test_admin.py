"""Who may change what the server does, over HTTP."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys

import pytest

from prefork.errors import SettingError
from prefork.settings import load
from prefork.testing import Client
from running import SOURCE, serving, wait_until

PATH = "/v2/workers/recycle"
TOKEN = "s3cr3t, and a blank"
SECONDS = re.compile(r" seconds=\d+\.\d{3}")


class Model:
    def predict(self, X, names=None):
        return X


@pytest.fixture
def lines():
    """The audit log; the logger of a server does not hand its lines on."""
    found = []

    class Handler(logging.Handler):
        def emit(self, record):
            found.append(record.getMessage())

    handler, log = Handler(), logging.getLogger("prefork.audit")
    log.addHandler(handler)
    yield found
    log.removeHandler(handler)


def bearer(token, scheme="Bearer"):
    return {"Authorization": f"{scheme} {token}".encode()}


def test_without_a_token_nobody_may(front, lines):
    """403 for everybody, with what to set; a token that somebody sends makes no difference."""
    with Client(Model, front) as client:
        for headers in ({}, bearer(""), bearer("anything")):
            answer = client.post(PATH, headers=headers)
            assert answer.status_code == 403
            assert "PREFORK_ADMIN_TOKEN" in answer.json()["error"]
    assert [SECONDS.sub("", line)[:45] for line in lines] == ["client=127.0.0.1 action=recycle status=403 re"] * 3


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
    assert [SECONDS.sub("", line)[:45] for line in lines] == ["client=127.0.0.1 action=recycle status=401 re"]
    assert TOKEN not in lines[0]


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_with_the_token_an_operator_may(front, lines, scheme):
    """The request goes through, and is one line in the audit log. Here there is nobody to replace anybody: 503."""
    with Client(Model, front, admin_token=TOKEN) as client:
        answer = client.post(PATH, headers=bearer(TOKEN, scheme))
        assert answer.status_code == 503
        assert "serves by itself" in answer.json()["error"]
    (line,) = lines
    assert SECONDS.sub("", line).startswith('client=127.0.0.1 action=recycle status=503 reason="')
    assert "serves by itself" in line


@pytest.mark.parametrize("token", ["schlüssel", "voilà", "鍵🔑"])
def test_a_token_of_any_alphabet(token):
    """A token travels as UTF-8, and may have any letters; blanks around it in the header do not count."""
    with Client(Model, admin_token=token) as client:
        for said, status in ((token, 503), (f"  {token} ", 503), (token[:-1], 401)):
            assert client.post(PATH, headers={"Authorization": b"Bearer " + said.encode()}).status_code == status


@pytest.mark.parametrize("worker_class", ["asgi", "sync", "gthread"])
def test_a_token_of_any_alphabet_from_a_shell(tmp_path, worker_class):
    """`prefork workers` and the server agree on such a token, whatever the worker."""
    source = "class Model:\n    def predict(self, X, names=None): return X\n"
    variables = {"PREFORK_ADMIN_TOKEN": "voilà 🔑"}
    with serving(tmp_path, source, "--workers", "1", "--worker-class", worker_class, env=variables) as server:
        command = [sys.executable, "-m", "prefork", "workers", "recycle", "--url", server.url]
        environment = {**os.environ, "PYTHONPATH": str(SOURCE), **variables}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_audit_log_does_not_follow_the_log_level(tmp_path):
    """Who asked, for what, what came of it and why: one line each, also where nothing else is logged."""
    source = "class Model:\n    def predict(self, X, names=None): return X\n"
    flags = ("--workers", "1", "--log-level", "critical")
    with serving(tmp_path, source, *flags, env={"PREFORK_ADMIN_TOKEN": TOKEN}) as server, server.client() as client:
        client.post(PATH, headers={"x-forwarded-for": "10.1.2.3"})
        client.post("/v2/repository/models/m%0an/load", headers=bearer(TOKEN))
        client.post("/v2/repository/models/m/unload", headers=bearer(TOKEN))
        client.post(PATH, headers=bearer(TOKEN))
        wait_until(lambda: server.log.count("client=") == 4, "the lines")
        said = [SECONDS.sub("", line[line.index("client=") :]) for line in server.log.splitlines() if "client=" in line]
    assert re.fullmatch(r'client=127.0.0.1 action=recycle status=401 reason=".*" forwarded="10.1.2.3"', said[0])
    assert said[1].startswith(r'client=127.0.0.1 action=load model="m\nn" status=503 reason="explicit model load')
    assert said[2].startswith('client=127.0.0.1 action=unload model="m" status=503 reason="explicit model load')
    assert said[3] == 'client=127.0.0.1 action=recycle status=202 reason=""'


@pytest.mark.parametrize(
    ("path", "more", "said"),
    [
        (PATH, {"content": b"x" * 2000}, "action=recycle status=413"),
        (PATH, {"content": b"x", "headers": {"content-encoding": "gzip"}}, "action=recycle status=400"),
        ("/v2/repository/models/m/load", {"content": b"x" * 2000}, 'action=load model="m" status=413'),
        ("/v2/repository/r/models/m/unload", {}, 'action=unload model="m" status=501'),
    ],
)
def test_what_is_refused_at_the_door_is_written_down(front, lines, path, more, said):
    """A request to change something that is too large, or cannot be read, is a line of the audit log as well."""
    with Client(Model, front, admin_token=TOKEN, max_body_size=1000) as client:
        client.post(path, **more)
        client.post("/v2/models/Model/infer", content=b"x" * 2000)
    (line,) = lines
    assert said in line


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
    """`admin_token_file` holds it, blanks around it and the byte order mark of some editors aside."""
    path = tmp_path / "token"
    path.write_text(f"\ufeff\n  {TOKEN} \r\n\n")
    variables = {"PREFORK_ADMIN_TOKEN_FILE": str(path)}
    assert load({}, variables, tmp_path).admin_token == TOKEN
    assert load({"admin_token_file": str(path)}, {"PREFORK_ADMIN_TOKEN": "other"}, tmp_path).admin_token == TOKEN
    (tmp_path / "prefork.yaml").write_text(f"admin_token_file: {path}\n")
    assert load({}, {"PREFORK_ADMIN_TOKEN": "other"}, tmp_path).admin_token == "other"
    assert load({}, {}, tmp_path).admin_token == TOKEN


WRONG = {
    "": "there is nothing in it",
    " \n": "there is nothing in it",
    "\ufeff\n": "there is nothing in it",
    "abc\ndef\n": "it has several lines",
    "abc\r\n\r\ndef": "it has several lines",
    "abc\tdef": "it has control characters",
}


@pytest.mark.parametrize("content", [None, b"\xff\xfeo\0", *map(str.encode, WRONG)])
def test_a_file_without_a_token_is_refused(tmp_path, content):
    """A file that is missing, empty, no UTF-8 or more than a token ends the start with one line, which repeats nothing of it."""
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    said = {None: "cannot be read", b"\xff\xfeo\0": "it is not UTF-8"} | {each.encode(): WRONG[each] for each in WRONG}
    with pytest.raises(SettingError) as refused:
        load({"admin_token_file": str(path)}, {}, tmp_path)
    assert str(refused.value).startswith(f"admin_token_file: {path}: {said[content]}")
    assert "\n" not in str(refused.value)
    assert "abc" not in str(refused.value).removeprefix(f"admin_token_file: {path}")


@pytest.mark.parametrize("text", [each for each in WRONG if each] + ["\udcff"])
def test_a_variable_without_a_token_is_refused(tmp_path, text):
    """So does a variable; an empty one is as good as none, and what was said is in no log."""
    with pytest.raises(SettingError) as refused:
        load({}, {"PREFORK_ADMIN_TOKEN": text}, tmp_path)
    assert str(refused.value) == f"PREFORK_ADMIN_TOKEN: {WRONG.get(text, 'it is not UTF-8')}" + {
        "it has several lines": ", and a token is one",
        "it has control characters": ", which no header can carry",
    }.get(WRONG.get(text), "")
    assert load({}, {"PREFORK_ADMIN_TOKEN": ""}, tmp_path).admin_token == ""
    assert load({}, {"PREFORK_ADMIN_TOKEN": f" {TOKEN}\n"}, tmp_path).admin_token == TOKEN

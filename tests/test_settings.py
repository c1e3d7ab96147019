"""Where a setting comes from, what it may be, and the line that says what was wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from prefork import settings
from prefork.errors import SettingError
from prefork.settings import setting

ROOT = Path(__file__).parents[1]
ENVIRON_OF_TRUTH = {"1": True, "true": True, "T": True, "Yes": True, "ON": True}
ENVIRON_OF_FALSEHOOD = {"0": False, "FALSE": False, "f": False, "no": False, "off": False}


@pytest.fixture
def load(tmp_path):
    """`load(flags, variables, yaml=text)` in an empty directory, on a machine without containers or annotations."""
    cwd, root = tmp_path / "cwd", tmp_path / "root"
    cwd.mkdir()
    root.mkdir()

    def load(flags: Any = None, environ: Any = None, *, yaml: str | None = None, **more: Any) -> settings.Settings:
        if yaml is not None:
            (cwd / "prefork.yaml").write_text(yaml)
        return settings.load(flags or {}, environ or {}, cwd, root=root, **more)

    load.cwd, load.root = cwd, root
    return load


def line_of(load, *args, **more) -> str:
    with pytest.raises(SettingError) as caught:
        load(*args, **more)
    assert caught.value.exit_code != 0
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_defaults(load):
    """With nothing said there are four workers with one thread each on port 9000 of this machine only."""
    found = load()
    assert (found.workers, found.threads, found.worker_class, found.bind) == (4, 1, "asgi", "127.0.0.1:9000")
    assert (found.timeout, found.graceful_timeout, found.keepalive) == (60.0, 30.0, 75.0)
    assert (found.max_body_size, found.nan, found.access_log) == (64 * 1024 * 1024, "null", False)


def test_the_struct_has_the_defaults_that_load_gives(load):
    """`Settings()` and `load()` with nothing said differ in the address and the cache only, which depend on the machine."""
    loaded = load()
    plain = settings.Settings(bind=loaded.bind, address=loaded.address, model_cache=loaded.model_cache)
    assert plain == loaded


def test_the_model_cache_is_where_caches_are(load):
    """What was fetched goes where it is said, else below XDG_CACHE_HOME where that is absolute, else below the home."""
    home = {"HOME": "/home/ann"}
    assert load({}, home).model_cache == "/home/ann/.cache/prefork/models"
    assert load({}, {**home, "XDG_CACHE_HOME": "caches"}).model_cache == "/home/ann/.cache/prefork/models"
    assert load({}, {**home, "XDG_CACHE_HOME": "/var/cache"}).model_cache == "/var/cache/prefork/models"
    assert load({}, {**home, "PREFORK_MODEL_CACHE": "models"}).model_cache == "models"


def test_flags_beat_the_environment_beats_the_file_beats_the_default(load):
    """The order of the sources, one taken away after the other."""
    yaml, environ, flags = "workers: 5", {"GUNICORN_WORKERS": "6"}, {"workers": "7"}
    assert load(flags, environ, yaml=yaml).workers == 7
    assert load({"workers": None}, environ, yaml=yaml).workers == 6
    assert load({}, {}, yaml=yaml).workers == 5
    assert load({}, {}, yaml="").workers == 4


def test_gunicorn_cmd_args_are_read_for_what_is_a_setting(load):
    """GUNICORN_CMD_ARGS goes before single variables; what is gunicorn's own in it stays for gunicorn."""
    environ = {
        "GUNICORN_CMD_ARGS": "-w 3 --backlog 7 --timeout=9 --preload --access-logfile '-'",
        "GUNICORN_WORKERS": "5",
    }
    found = load({}, environ)
    assert (found.workers, found.timeout, found.preload_app) == (3, 9.0, True)
    assert found.gunicorn_cmd_args == "--backlog 7 --access-logfile -"


@pytest.mark.parametrize("args", ["--workers x", "--workers", "'"])
def test_bad_gunicorn_cmd_args(load, args):
    """What is wrong in GUNICORN_CMD_ARGS is said with its name."""
    assert line_of(load, {}, {"GUNICORN_CMD_ARGS": args}).startswith("GUNICORN_CMD_ARGS: ")


def test_an_empty_variable_is_not_set(load):
    """A variable that a template left empty is as good as none."""
    assert load({}, {"GUNICORN_WORKERS": "", "PORT": ""}).workers == 4


@pytest.mark.parametrize(("word", "value"), [*ENVIRON_OF_TRUTH.items(), *ENVIRON_OF_FALSEHOOD.items()])
def test_booleans_mean_what_they_say(load, word, value):
    """1, true, t, yes, on and 0, false, f, no, off, in any case; in the environment, a flag or the file."""
    assert load({}, {"GUNICORN_ACCESS_LOG": word}).access_log is value
    assert load({"access_log": word}).access_log is value
    assert load(yaml=f"access_log: {word}").access_log is value


@pytest.mark.parametrize("word", ["2", "tru", "y", "enabled", "-1"])
def test_no_other_word_is_a_boolean(load, word):
    """Any other word is refused, not taken for false."""
    assert line_of(load, {}, {"GUNICORN_ACCESS_LOG": word}).startswith(f"GUNICORN_ACCESS_LOG={word}: true or false")


@pytest.mark.parametrize(
    ("flags", "environ", "yaml", "start"),
    [
        ({}, {"GUNICORN_WORKERS": "abc"}, None, "GUNICORN_WORKERS=abc: a whole number of at least 1 or auto"),
        ({}, {"GUNICORN_WORKERS": "0"}, None, "GUNICORN_WORKERS=0: "),
        ({"workers": "1.5"}, {}, None, "--workers 1.5: "),
        ({"threads": "-1"}, {}, None, "--threads -1: "),
        ({"port": "65536"}, {}, None, "--port 65536: "),
        ({"threads": "1025"}, {}, None, "--threads 1025: a whole number from 0 to 1024 is needed"),
        ({"instances": "1025"}, {}, None, "--instances 1025: a whole number from 1 to 1024 is needed"),
        ({"poll_seconds": "0.01"}, {}, None, "--poll-seconds 0.01: a number of seconds of at least 0.05 is needed"),
        (
            {"memory_limit": "9" * 30},
            {},
            None,
            f"--memory-limit {'9' * 30}: a number of bytes within 64 bits is needed",
        ),
        ({"timeout": "1e300"}, {}, None, "--timeout 1e300: a number of seconds of at most 1000000000 is needed"),
        ({"timeout": "inf"}, {}, None, "--timeout inf: "),
        ({"keepalive": "-1"}, {}, None, "--keepalive -1: "),
        ({"worker_class": "tornado"}, {}, None, "--worker-class tornado: one of asgi, sync, gthread, gevent"),
        ({"log_level": "loud"}, {}, None, "--log-level loud: one of debug"),
        ({"max_body_size": "64Q"}, {}, None, "--max-body-size 64Q: "),
        ({"bind": "localhost:99999"}, {}, None, "--bind localhost:99999: "),
        ({"bind": "8080"}, {}, None, "--bind 8080: "),
        ({"name": "a/b"}, {}, None, "--name a/b: "),
        ({}, {}, "workers: many", "prefork.yaml: workers: many: "),
        ({}, {}, "workers: true", "prefork.yaml: workers: True: "),
        ({}, {}, "workers: 4.0", "prefork.yaml: workers: 4.0: "),
        ({}, {}, "timeout: yes", "prefork.yaml: timeout: True: "),
        ({}, {}, "version: 1.10", "prefork.yaml: version: 1.1: text is needed; put it in quotes"),
        ({}, {}, "name: no", "prefork.yaml: name: False: text"),
        ({}, {}, "gunicorn: 3", "prefork.yaml: gunicorn: 3: a mapping"),
        ({}, {}, "wrokers: 3", "prefork.yaml: wrokers: no such setting; did you mean workers?"),
        ({}, {}, "max-requests: 3", "prefork.yaml: max-requests: no such setting; did you mean max_requests?"),
        ({}, {}, "zzz: 3", "prefork.yaml: zzz: no such setting"),
        ({}, {}, "- workers", "prefork.yaml: a mapping of settings"),
        ({}, {}, "a: b: c", "prefork.yaml: line 1, column 5: "),
        ({}, {}, "a: [1", "prefork.yaml: line 1"),
        ({}, {}, "environment: {A=B: c}", "prefork.yaml: environment: A=B: a variable's name is needed"),
        ({}, {}, 'environment: {A: "b\\0"}', "prefork.yaml: environment: A: text without the character NUL"),
        ({}, {}, "environment: {A: yes}", "prefork.yaml: environment: A: text is needed; put it in quotes"),
        ({}, {}, "workers: 1\nworkers: 2", "prefork.yaml: line 2, column 1: workers is said twice"),
        ({}, {}, "parameters: {x: !!set {a}}", "prefork.yaml: line 1, column 17: the tag !!set has no meaning here"),
        ({}, {}, "parameters: " + "[" * 5000, "prefork.yaml: it nests deeper than 100 levels"),
        ({"config": "none.yaml"}, {}, None, "none.yaml: cannot be read: No such file or directory"),
        ({"wrokers": "3"}, {}, None, "flag: wrokers: no such setting; did you mean workers?"),
    ],
)
def test_one_line_names_the_source_and_what_is_wrong(load, flags, environ, yaml, start):
    """An unknown name, an impossible value or an unreadable file is one line that opens with its source."""
    assert line_of(load, flags, environ, yaml=yaml).startswith(start)


def test_a_date_is_text(load):
    """What looks like a date in the file is the text that was written, as a setting and as a parameter."""
    said = load(yaml="version: 2024-01-01\nparameters: {trained: 2024-01-01}")
    assert (said.version, said.parameters) == ("2024-01-01", {"trained": "2024-01-01"})


def test_a_directory_is_no_file_of_settings(load):
    """What is there and cannot be read is said, not skipped."""
    (load.cwd / "prefork.yaml").mkdir()
    assert line_of(load) == "prefork.yaml: cannot be read: Is a directory"


def test_bytes_that_are_no_text(load):
    """A file that is no UTF-8 is said in one line too."""
    (load.cwd / "prefork.yaml").write_bytes(b"model: \xff\xfe\x00")
    assert line_of(load).startswith("prefork.yaml: ")


def test_the_file_is_looked_for_in_the_model_directory_as_well(load):
    """prefork.yaml of the working directory wins, else that of --model-dir; --config names another."""
    models = load.cwd / "models"
    models.mkdir()
    (models / "prefork.yaml").write_text("workers: 8")
    assert load({"model_dir": str(models)}).workers == 8
    assert load({"model_dir": "models"}).config == "models/prefork.yaml"
    assert load({}, {"PREFORK_CONFIG": "models/prefork.yaml"}).workers == 8
    assert load({"model_dir": "models"}, yaml="workers: 9").workers == 9


def test_values_are_read_from_every_form(load):
    """Sizes with units, YAML's null for the word null, a version that YAML takes for a number, levels in any case."""
    assert load({"max_body_size": "2 KiB"}).max_body_size == 2048
    assert load({"max_body_size": 1000}).max_body_size == 1000
    assert load(yaml="nan: null").nan == "null"
    assert load(yaml="nan: literal\nversion: 3\nworkers:").version == "3"
    assert load({}, {"SELDON_LOG_LEVEL": "WARNING"}).log_level == "warning"
    assert load({}, {"MODEL_METADATA": '{"name": "a", "versions": ["1"]}'}).model_metadata == {
        "name": "a",
        "versions": ["1"],
    }
    assert load({}, {"MODEL_METADATA": "name: a\nplatform: p"}).model_metadata == {"name": "a", "platform": "p"}


@pytest.mark.parametrize(
    ("flags", "environ", "expected"),
    [
        ({}, {}, "127.0.0.1:9000"),
        ({}, {"PORT": "1"}, "127.0.0.1:1"),
        ({}, {"PORT": "1", "PREDICTIVE_UNIT_SERVICE_PORT": "2"}, "127.0.0.1:2"),
        ({}, {"PREDICTIVE_UNIT_SERVICE_PORT": "2", "PREDICTIVE_UNIT_HTTP_SERVICE_PORT": "3"}, "127.0.0.1:3"),
        ({"port": "4"}, {"PREDICTIVE_UNIT_HTTP_SERVICE_PORT": "3"}, "127.0.0.1:4"),
        ({"port": "4", "bind": "[::1]:5"}, {}, "[::1]:5"),
        ({"bind": "localhost"}, {"PORT": "1"}, "localhost:1"),
        ({"bind": ":80"}, {}, "0.0.0.0:80"),
        ({"bind": "unix:/tmp/a.sock"}, {"PORT": "1"}, "unix:/tmp/a.sock"),
        ({"bind": "127.0.0.1:1,127.0.0.1:2"}, {}, "127.0.0.1:1,127.0.0.1:2"),
        ({"address": "::1"}, {}, "[::1]:9000"),
        ({"port": "4"}, {"GUNICORN_BIND": "127.0.0.1:6"}, "127.0.0.1:4"),
        ({}, {"GUNICORN_BIND": "127.0.0.1:6", "PORT": "1"}, "127.0.0.1:6"),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "0.0.0.0:9000"),
        ({}, {"container": "podman"}, "0.0.0.0:9000"),
        ({}, {"PREFORK_PORT": "tcp://10.0.0.1:80"}, "127.0.0.1:9000"),
    ],
)
def test_the_address(load, flags, environ, expected):
    """--bind, else the port's sources in their order; every interface in a container, this machine outside one."""
    assert load(flags, environ).bind == expected


@pytest.mark.parametrize("mark", [".dockerenv", "run/.containerenv"])
def test_a_container_is_known_by_its_file(load, mark):
    """Docker and podman leave a file in the root of their containers."""
    (load.root / mark).parent.mkdir(exist_ok=True)
    (load.root / mark).touch()
    assert load().bind == "0.0.0.0:9000"


def test_a_port_of_the_environment_beats_the_address_of_the_file(load):
    """The platform's probes go to the port that the platform names: it wins over what lies in the image."""
    assert load({}, {"PORT": "8080"}, yaml="bind: 127.0.0.1:9000").bind == "127.0.0.1:8080"


def test_workers_auto_follows_the_quota(load):
    """`auto` is a worker a whole CPU of the container's quota."""
    for name, content in {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "100000 100000"}.items():
        (load.root / name).parent.mkdir(parents=True, exist_ok=True)
        (load.root / name).write_text(content)
    assert load({"workers": "auto"}).workers == 1
    assert load(yaml="workers: auto").workers == 1


def test_web_concurrency_is_the_last_word_on_workers(load):
    """WEB_CONCURRENCY counts where GUNICORN_WORKERS is not set."""
    assert load({}, {"WEB_CONCURRENCY": "3"}).workers == 3
    assert load({}, {"WEB_CONCURRENCY": "3", "GUNICORN_WORKERS": "2"}).workers == 2


def test_single_threaded_is_at_most_one_thread(load):
    """FLASK_SINGLE_THREADED forces one thread, and leaves `threads: 0` alone."""
    assert load({"threads": "8"}, {"FLASK_SINGLE_THREADED": "1"}).threads == 1
    assert load({"threads": "0"}, {"FLASK_SINGLE_THREADED": "1"}).threads == 0
    assert load({"threads": "8"}, {"FLASK_SINGLE_THREADED": "0"}).threads == 8


def test_seldons_rest_timeout_annotation(load):
    """`seldon.io/rest-timeout`, in milliseconds, is the timeout; a flag or a variable wins, the file does not."""
    path = load.root / "etc/podinfo/annotations"
    path.parent.mkdir(parents=True)
    path.write_text('kubernetes.io/config.seen="2026"\nseldon.io/rest-timeout="2500"\n')
    assert load(yaml="timeout: 7").timeout == 2.5
    assert load({}, {"GUNICORN_TIMEOUT": "3"}).timeout == 3.0
    path.write_text('seldon.io/rest-timeout="soon"\n')
    assert "seldon.io/rest-timeout=soon: " in line_of(load)


def test_a_commands_own_defaults_lie_under_every_source(load):
    """What a command starts with otherwise is still a default."""
    assert load(defaults={"workers": 1}).workers == 1
    assert load(defaults={"workers": 1}, yaml="workers: 2").workers == 2


def test_a_variable_can_be_put_before_the_flag(load):
    """Seldon's command lets SELDON_LOG_LEVEL beat its flag."""
    environ = {"SELDON_LOG_LEVEL": "ERROR"}
    assert load({"log_level": "debug"}, environ).log_level == "debug"
    assert load({"log_level": "debug"}, environ, variables_first=("log_level",)).log_level == "error"


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("PREFORK_WORKERS", "GUNICORN_WORKERS"),
        ("GUNICORN_LOGLEVEL", "SELDON_LOG_LEVEL"),
        ("PREFORK_MAX_BODYSIZE", "PREFORK_MAX_BODY_SIZE"),
    ],
)
def test_a_variable_that_misses_is_named(load, variable, meant):
    """A variable that looks like a setting's and is none is said to have no effect."""
    assert load({}, {variable: "3"}).notes == (f"{variable} has no effect; did you mean {meant}?",)


def test_a_service_called_prefork_is_no_setting(load):
    """Kubernetes' variables for a Service of that name are left alone."""
    environ = {
        "PREFORK_SERVICE_HOST": "10.0.0.1",
        "PREFORK_PORT": "tcp://10.0.0.1:80",
        "PREFORK_PORT_80_TCP_ADDR": "10.0.0.1",
    }
    assert load({}, environ).notes == ()


def typed(kind: str, value: object) -> str:
    import json

    return json.dumps([{"name": "p", "type": kind, "value": value}])


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("INT", "3", 3),
        ("INT", 3, 3),
        ("INT", 3.0, 3),
        ("FLOAT", "1.5", 1.5),
        ("DOUBLE", 2, 2.0),
        ("STRING", "abc", "abc"),
        ("STRING", 5, "5"),
        ("BOOL", "true", True),
        ("BOOL", "y", True),
        ("BOOL", "0", False),
        ("BOOL", False, False),
        ("BOOL", 1, True),
    ],
)
def test_seldons_typed_parameters(load, kind, value, expected):
    """Each of Seldon's types, from text as the operator sends it and from JSON scalars."""
    found = load({}, {"PREDICTIVE_UNIT_PARAMETERS": typed(kind, value)}).parameters["p"]
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("kind", "value"),
    [("INT", "3.5"), ("INT", 3.7), ("INT", "x"), ("FLOAT", "x"), ("FLOAT", True), ("BOOL", "maybe"), ("BOOL", 2),
     ("STRING", None), ("INT", [1]), ("LIST", "[1]"), (None, "1")],
)  # fmt: skip
def test_a_bad_parameter_is_named(load, kind, value):
    """A value that is none of its type, or a type that is none of Seldon's, is refused with the parameter's name."""
    line = line_of(load, {}, {"PREDICTIVE_UNIT_PARAMETERS": typed(kind, value)})
    assert line.startswith("PREDICTIVE_UNIT_PARAMETERS: parameter 'p': ")


@pytest.mark.parametrize(
    "text", ["{", '"a"', "3", '[{"type": "INT"}]', "[3]", '{"a b": 1}', "[" * 100_000], ids=lambda text: text[:20]
)
def test_parameters_that_are_none(load, text):
    """Whatever is neither of the two forms is one line."""
    assert line_of(load, {"parameters": text}).startswith("--parameters")


def test_a_bad_line_does_not_repeat_a_structure(load):
    """Parameters may hold what does not belong in a log: their text is not repeated."""
    assert "secret" not in line_of(load, {"parameters": '{"password": "secret"'})


def test_parameters_come_together_by_name(load):
    """prefork.yaml's are defaults; the flag replaces the variable; `-p` goes over all, as JSON where it reads as JSON."""
    yaml = "parameters: {a: 1, b: [2], c: x}"
    environ = {"PREDICTIVE_UNIT_PARAMETERS": typed("INT", "9")}
    assert load({}, {"PREDICTIVE_UNIT_PARAMETERS": "[]"}, yaml=yaml).parameters == {"a": 1, "b": [2], "c": "x"}
    flags = {"parameters": '{"a": 5}', "assignments": ("c=true", "d=text", "e=")}
    assert load(flags, environ, yaml=yaml).parameters == {"a": 5, "b": [2], "c": True, "d": "text", "e": ""}
    assert load({}, environ, yaml=yaml).parameters == {"a": 1, "b": [2], "c": "x", "p": 9}


@pytest.mark.parametrize("assignment", ["a", "=1", "a b=1"])
def test_a_bad_assignment(load, assignment):
    """`-p` takes name=value."""
    assert line_of(load, {"assignments": [assignment]}).startswith(f"-p {assignment}: ")


def test_the_thread_budget_goes_into_the_environment():
    """What is not set is set to the CPUs over the workers; what is set stays."""
    environ = {"MKL_NUM_THREADS": "7"}
    settings.apply_thread_budget(settings.Settings(workers=1000), environ)
    assert (environ["OMP_NUM_THREADS"], environ["MKL_NUM_THREADS"]) == ("1", "7")


@pytest.mark.parametrize(
    ("said", "expected"), [("force", "force"), ("FORCE", "force"), ("true", True), (True, True), ("off", False)]
)
def test_preload_app_is_a_boolean_or_force(load, said, expected):
    """`force` stands beside the booleans, from every source."""
    assert load({"preload_app": said}).preload_app == expected
    assert load({}, {"GUNICORN_PRELOAD_APP": str(said)}).preload_app == expected
    assert load({}, {}, yaml=f"preload_app: {said}").preload_app == expected
    assert line_of(load, {"preload_app": "perhaps"}).endswith("true, false or force is needed")


def test_the_threads_of_one_worker(monkeypatch):
    """OMP_NUM_THREADS if it says a number, else the CPUs over the workers, and at least one."""
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert settings.thread_share(settings.Settings(workers=2)) == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert settings.thread_share(settings.Settings(workers=1000)) == 1


def test_variables_for_a_while(monkeypatch):
    """They are set inside and as before behind it, whether there was one or not."""
    monkeypatch.setenv("PREFORK_ONE", "1")
    monkeypatch.delenv("PREFORK_TWO", raising=False)
    with settings.variables({"PREFORK_ONE": "2", "PREFORK_TWO": "2"}):
        assert (os.environ["PREFORK_ONE"], os.environ["PREFORK_TWO"]) == ("2", "2")
    assert os.environ["PREFORK_ONE"] == "1"
    assert "PREFORK_TWO" not in os.environ


def test_the_table_in_the_documentation_is_current():
    """docs/settings.md has the table that the code gives; `python -m prefork.settings` prints it anew."""
    text = (ROOT / "docs/settings.md").read_text()
    documented = text.partition("<!-- settings -->\n")[2].partition("<!-- /settings -->")[0]
    assert documented == settings.table()
    command = [sys.executable, "-m", "prefork.settings"]
    printed = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": "server"}, cwd=ROOT, capture_output=True, check=True
    )
    assert printed.stdout.decode() == documented


def test_every_setting_is_written_about_and_can_be_said():
    """Each field has its sentence, its row and at least one source; no flag or variable belongs to two settings."""
    known = settings.abouts()
    assert set(settings.Settings.__struct_fields__) - {"notes", "thread_variables"} == set(known)
    assert all(about.text.endswith((".", ")")) and "|" not in about.text for about in known.values())
    for names in (
        [f for about in known.values() for f in about.flags.split()],
        [v for about in known.values() for v in about.env.split()],
    ):
        assert len(names) == len(set(names))


def test_reading_settings_does_not_import_numpy():
    """numpy fixes the threads of OpenBLAS as it is imported: the command line must be read before that."""
    code = "import sys; from prefork import cli, microservice; print('numpy' in sys.modules)"
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, env={**os.environ, "PYTHONPATH": "server"}, cwd=ROOT, capture_output=True, check=True)
    assert out.stdout == b"False\n"


@pytest.mark.parametrize("said", ["a,b", ["a", "b"], ("a,b",), [" a", "b "], "a,,b"])
def test_several_values(said):
    """A setting of several values takes a list, text with commas and a flag that is repeated."""
    assert setting.several(setting.text)(said) == ("a", "b")


def test_a_repeated_flag_gathers(load):
    """`--load-model a --load-model b` is both; where it is not said the default holds."""
    assert load({"load_model": ("a", "b")}).load_model == ("a", "b")
    assert load().load_model == ()


def test_host_is_no_address(load):
    """`--host 0.0.0.0`, which other servers take, is refused with what to say instead."""
    with pytest.raises(SettingError, match="--address"):
        load({"host": "0.0.0.0"})

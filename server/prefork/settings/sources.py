"""The places where a setting may be said; each is read into a layer, {setting: what is given there}.

Nothing is interpreted here but the form of the source itself: what a value has to be is its setting's own reader's business.
"""

from __future__ import annotations

import argparse
import difflib
import shlex
from collections import ChainMap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prefork.errors import SettingError
from prefork.settings import document
from prefork.settings.setting import About, Given

Layer = dict[str, Given]
Abouts = Mapping[str, About]
FILE = "prefork.yaml"

_GUNICORN_FLAGS: dict[str, tuple[str, ...]] = {
    "bind": ("-b", "--bind"),
    "workers": ("-w", "--workers"),
    "worker_class": ("-k", "--worker-class"),
    "threads": ("--threads",),
    "max_requests": ("--max-requests",),
    "max_requests_jitter": ("--max-requests-jitter",),
    "timeout": ("-t", "--timeout"),
    "graceful_timeout": ("--graceful-timeout",),
    "keepalive": ("--keep-alive",),
    "log_level": ("--log-level",),
    "pidfile": ("-p", "--pid"),
    "reload": ("--reload",),
    "preload_app": ("--preload",),
}
"""The flags of gunicorn's that are settings of ours: there must be one truth about the number of workers."""


class _Words(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise SettingError(f"GUNICORN_CMD_ARGS: {message}")


def layers(
    flags: Layer,
    environ: Mapping[str, str],
    abouts: Abouts,
    *,
    cwd: Path,
    root: Path,
    variables_first: Collection[str] = (),
) -> list[Layer]:
    """Every source, the one that wins first. The variables of `variables_first` go before the flags."""
    variables = from_environment(environ, abouts)
    above = [
        {name: given for name, given in variables.items() if name in variables_first},
        flags,
        from_gunicorn_args(environ),
        variables,
    ]
    return [*above, from_annotations(root / "etc/podinfo/annotations"), _from_default_file(above, cwd, abouts)]


def rank(name: str, among: Sequence[Layer]) -> int:
    """The number of the first layer that has the setting; that of the defaults is one more than there are layers."""
    return next((number for number, layer in enumerate(among) if name in layer), len(among))


def _from_default_file(above: Sequence[Layer], cwd: Path, abouts: Abouts) -> Layer:
    given = ChainMap(*above)
    if "config" in given:
        name = given["config"].read(abouts["config"])
        return from_file(cwd / name, name, abouts)
    for folder in ("", *(str(given[name].raw) for name in ["model_dir"] if name in given)):
        path = cwd / folder / FILE
        if path.exists():
            return from_file(path, str(Path(folder) / FILE), abouts)
    return {}


def from_flags(flags: Mapping[str, Any], abouts: Abouts) -> Layer:
    """Flags that were given; None stands for one that was not."""
    _check_names("flag", flags, abouts)
    return {name: Given(f"{_flag(name, abouts)} ", raw) for name, raw in flags.items() if raw is not None}


def _flag(name: str, abouts: Abouts) -> str:
    about = abouts[name]
    return about.flags.split()[0] if about.flags else name


def from_environment(environ: Mapping[str, str], abouts: Abouts) -> Layer:
    """Variables, the first of a setting's names that is set; an empty one is as good as none."""
    given = {}
    for name, about in abouts.items():
        variable = next((each for each in about.env.split() if environ.get(each)), None)
        if variable is not None:
            given[name] = Given(f"{variable}=", environ[variable])
    return given


def from_gunicorn_args(environ: Mapping[str, str]) -> Layer:
    """What GUNICORN_CMD_ARGS says about settings of ours; the rest of it is gunicorn's own and stays one text."""
    if not environ.get("GUNICORN_CMD_ARGS"):
        return {}
    try:
        ours, rest = _gunicorn_parser().parse_known_args(shlex.split(environ["GUNICORN_CMD_ARGS"]))
    except ValueError as error:
        raise SettingError(f"GUNICORN_CMD_ARGS: {error}") from None
    said = {name: raw for name, raw in vars(ours).items() if raw is not None}
    given = {name: Given(f"GUNICORN_CMD_ARGS: {_GUNICORN_FLAGS[name][-1]} ", raw) for name, raw in said.items()}
    return {**given, "gunicorn_cmd_args": Given("GUNICORN_CMD_ARGS=", shlex.join(rest))}


def _gunicorn_parser() -> argparse.ArgumentParser:
    parser = _Words(add_help=False, allow_abbrev=False)
    for name, flags in _GUNICORN_FLAGS.items():
        if name in {"reload", "preload_app"}:
            parser.add_argument(*flags, dest=name, action="store_true", default=None)
        else:
            parser.add_argument(*flags, dest=name)
    return parser


def from_annotations(path: Path) -> Layer:
    """Seldon's pod annotations, lines of `key="value"`: `seldon.io/rest-timeout`, in milliseconds, is the timeout."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    values = {key.strip(): value.strip()[1:-1] for key, _, value in (line.partition("=") for line in lines)}
    if "seldon.io/rest-timeout" not in values:
        return {}
    milliseconds = values["seldon.io/rest-timeout"]
    source = f"{path}: seldon.io/rest-timeout"
    if not milliseconds.isdecimal():
        raise SettingError(f"{source}={milliseconds}: a whole number of milliseconds is needed")
    return {"timeout": Given(f"{source}=", int(milliseconds) / 1000)}


def from_file(path: Path, name: str, abouts: Abouts) -> Layer:
    """prefork.yaml: a mapping of settings. A key without a value is as good as none. name: the file's, in errors."""
    try:
        said = document.read(path.read_bytes())
    except OSError as error:
        raise SettingError(f"{name}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise SettingError(f"{name}: {error}") from None
    if not isinstance(said, dict | None):
        raise SettingError(f"{name}: a mapping of settings is needed, like `model: Iris`")
    _check_names(name, said or {}, abouts)
    # YAML reads `nan: null` as no value at all, and means the word.
    given = {
        key: Given(f"{name}: {key}: ", raw) for key, raw in (said or {}).items() if raw is not None or key == "nan"
    }
    return {**given, "config": Given("", name)}


def unread(environ: Mapping[str, str], abouts: Abouts) -> Iterator[str]:
    """A sentence for each variable that looks like one of ours and is none: `PREFORK_WORKERS`, `GUNICORN_LOGLEVEL`."""
    read = {variable for about in abouts.values() for variable in about.env.split()}
    for variable in sorted(set(environ) - read):
        prefix, _, rest = variable.partition("_")
        # Kubernetes sets PREFORK_PORT and PREFORK_SERVICE_HOST in every pod beside a Service called prefork.
        if prefix not in {"PREFORK", "GUNICORN"} or rest.startswith(("PORT", "SERVICE_")):
            continue
        near = _near(rest, abouts)
        if near is not None and abouts[near].env:
            yield f"{variable} has no effect; did you mean {abouts[near].env.split()[0]}?"


def _near(name: str, abouts: Abouts) -> str | None:
    return next(iter(difflib.get_close_matches(name.lower().replace("-", "_"), abouts, n=1, cutoff=0.7)), None)


def _check_names(source: str, names: Iterable[Any], abouts: Abouts) -> None:
    for name in names:
        if name not in abouts:
            near = _near(str(name), abouts)
            raise SettingError(f"{source}: {name}: no such setting" + (f"; did you mean {near}?" if near else ""))

"""The command line of the settings: one option for each, made from what is written beside it.

Options take dashes or underscores (`--model-name`, `--model_name`). A boolean is said as `--access-log`,
`--no-access-log`, `--access-log=false` or `--access-log false`; one that may also be a word as `--preload-app force`.
What an option may be set to is the setting's own business: everything else is handed on as text.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import click

from prefork import standard
from prefork.errors import SettingError, StartupError
from prefork.settings import abouts
from prefork.settings.setting import FALSE, TRUE, About, boolean

_UNUSED = "unused_"
_WORDS = {word for word in TRUE | FALSE if len(word) > 1} | {"0", "1"}
"""What counts as a boolean's value when it stands apart from it: `--reload t` starts the model `t`."""


class Command(click.Command):
    """A command whose options take underscores for dashes, and whose boolean options take a value as well."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Spell `--http_port` as `--http-port` and `--x=false` or `--x false` as `--no-x` before click sees them."""
        options = [option for option in self.params if isinstance(option, click.Option)]
        names = {name for option in options for name in (*option.opts, *option.secondary_opts)}
        booleans = {name for option in options if option.is_flag for name in option.opts}
        switches = {name: option.words for option in options if isinstance(option, Switch) for name in option.opts}
        return super().parse_args(ctx, list(_spelled([*_switched(args, switches)], names, booleans)))


class Switch(click.Option):
    """A boolean that may be one of some words as well; click sees it with its value, always."""

    def __init__(self, names: Sequence[str], words: Sequence[str], text: str) -> None:
        super().__init__(names, type=str, metavar=f"[{'|'.join(['true', 'false', *words])}]", help=text)
        self.words = {*words, *_WORDS}


def of_settings() -> list[click.Parameter]:
    """An option for each setting that has flags, in the table's order, and `-p name=value`."""
    options: list[click.Parameter] = [
        Switch([name, *about.flags.split()], words, about.text)
        if (words := getattr(about.read, "words", ()))
        else _many(name, about)
        if getattr(about.read, "many", False)
        else _option(name, about.flags.split(), about.text, is_boolean=about.read is boolean)
        for name, about in abouts().items()
        if about.flags.startswith("-")
    ]
    one = "One argument for the constructor; may be repeated."
    return [*options, click.Option(["-p", "assignments"], multiple=True, metavar="NAME=VALUE", help=one)]


def unused(names: Sequence[str], *, is_boolean: bool = False) -> list[click.Parameter]:
    """Hidden options that are accepted for the sake of other servers' command lines."""
    return [
        _option(_UNUSED + name.replace("-", "_"), [f"--{name}"], "", is_boolean=is_boolean, hidden=True)
        for name in names
    ]


def take_unused(flags: dict[str, Any]) -> list[str]:
    """Remove the unused options from what was given, and name those that were: `--grpc-port`."""
    names = sorted(name for name in flags if name.startswith(_UNUSED))
    given = {name: flags.pop(name) for name in names}
    return [f"--{_dashed(name.removeprefix(_UNUSED))}" for name, value in given.items() if value not in (None, False)]


def run(command: click.Command, args: Sequence[str] | None = None) -> NoReturn:
    """Run a command and leave with its exit code; whatever was wrong is one line on stderr."""
    standard.name_streams()
    try:
        code = command.main(args, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        code = error.exit_code
    except click.ClickException as error:
        code = _say(error.format_message(), error.exit_code)
    except StartupError as error:
        code = _say(str(error), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        code = 130
    sys.exit(code)


def _say(message: str, code: int) -> int:
    click.echo(f"prefork: {message}", err=True)
    return code


def _spelled(args: Sequence[str], names: Collection[str], booleans: Collection[str]) -> Iterator[str]:
    waiting = list(reversed(args))
    while waiting:
        argument = waiting.pop()
        if argument == "--":
            yield from (argument, *reversed(waiting))
            return
        name, equals, value = argument.partition("=")
        name = _dashed(name) if _dashed(name) in names else name
        if name in booleans and not equals and waiting and waiting[-1].lower() in _WORDS:
            equals, value = "=", waiting.pop()
        yield _one_word(name, value) if name in booleans and equals else name + equals + value


def _switched(args: Sequence[str], switches: Mapping[str, Collection[str]]) -> Iterator[str]:
    """`--preload` as `--preload=true`, `--no-preload` as `--preload=false`, `--preload force` as `--preload=force`."""
    waiting = list(reversed(args))
    while waiting:
        argument = waiting.pop()
        if argument == "--":
            yield from (argument, *reversed(waiting))
            return
        name, equals, value = argument.partition("=")
        name, positive = _dashed(name), f"--{_dashed(name).removeprefix('--no-')}"
        if name in switches:
            if not equals:
                value = waiting.pop() if waiting and waiting[-1].lower() in switches[name] else "true"
            yield f"{name}={value}"
        elif name.startswith("--no-") and positive in switches and not equals:
            yield f"{positive}=false"
        else:
            yield argument


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _one_word(name: str, value: str) -> str:
    try:
        return name if boolean(value) else f"--no-{name.removeprefix('--')}"
    except ValueError as error:
        raise SettingError(f"{name} {value}: {error}") from None


def _many(name: str, about: About) -> click.Option:
    """One that may be repeated; None where it is not there, as the others are."""
    names = [name, *about.flags.split()]
    return click.Option(
        names, multiple=True, metavar="VALUE", help=about.text, callback=lambda _1, _2, said: said or None
    )


def _option(name: str, names: Sequence[str], text: str, *, is_boolean: bool, hidden: bool = False) -> click.Option:
    if not is_boolean:
        return click.Option([name, *names], type=str, hidden=hidden, metavar="VALUE", help=text)
    # Each name has its own opposite: `--preload` has `--no-preload`.
    pairs = [f"{each}/--no-{each.removeprefix('--')}" for each in names]
    return click.Option([name, *pairs], default=None, hidden=hidden, help=text)

"""From an import path to a built and loaded object."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from prefork.compat.user_model import SeldonComponent, SeldonNotImplementedError
from prefork.errors import ModelLoadError
from prefork.model import loader

Write = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes a file into the working directory, whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)

    def write(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    yield write
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def refused(path: str) -> str:
    """The one line that says why nothing can be served from a path."""
    with pytest.raises(ModelLoadError) as caught:
        loader.find(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("path", ["plum", "orchard.plum:Plum", "orchard.plum.Plum", "orchard.plum:Tree.Plum"])
def test_every_form_of_path_finds_the_class(write: Write, path: str):
    """`Name`, `pkg.module:Class` and `pkg.module.Class` all mean a class; behind the colon a nested one too."""
    write("plum.py", "class plum: pass\n")
    write("orchard/__init__.py", "")
    write("orchard/plum.py", "class Plum: pass\nclass Tree:\n    class Plum: pass\n")
    assert loader.find(path).__name__.lower() == "plum"


def test_a_function_may_make_the_model(write: Write):
    """Any callable will do, such as a function that returns the object."""
    write("plum_maker.py", "def make(size): return [size]\n")
    assert loader.construct(loader.find("plum_maker:make"), {"size": 3}) == [3]


def test_the_working_directory_hides_nothing(write: Write, monkeypatch: pytest.MonkeyPatch):
    """The working directory is searched last: a user's `queue.py` does not replace the standard library's."""
    write("calendar.py", "class calendar: pass\n")
    write("plum_first.py", "import calendar\nclass plum_first:\n    months = calendar.month_name\n")
    monkeypatch.delitem(sys.modules, "calendar", raising=False)
    assert loader.find("plum_first").months[1]
    assert sys.path[-1] == str(Path.cwd())
    loader.find("plum_first")
    assert sys.path.count(str(Path.cwd())) == 1
    assert "calendar.py) has no class 'Calender'" in refused("calendar:Calender")


def test_a_missing_module_is_named(write: Write):
    """Whether the user's own module is missing or one that it imports is said."""
    write("plum_needs.py", "import no_such_library_here\n")
    assert refused("no_such_plum").startswith("no module 'no_such_plum'")
    assert refused("orchid.plum:Plum").startswith("no module 'orchid.plum': there is no 'orchid'")
    message = refused("plum_needs")
    assert message.startswith("'plum_needs' imports 'no_such_library_here', which is not installed")


def test_the_cause_is_chained(write: Write):
    """The exception of the import is kept behind the line, for the traceback."""
    write("plum_broken.py", "x = 1 / 0\n")
    with pytest.raises(ModelLoadError, match="cannot import 'plum_broken': ZeroDivisionError") as caught:
        loader.find("plum_broken")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_module_that_exits_is_refused(write: Write):
    """A script that calls sys.exit when it is imported does not take the server with it silently."""
    write("plum_exits.py", "import sys\nsys.exit('usage')\n")
    assert refused("plum_exits") == "cannot import 'plum_exits': SystemExit: usage"


def test_a_missing_class_is_named(write: Write):
    """A module without the class is named with its file, so that a wrong module of that name is seen."""
    write("plum_empty.py", "value = 3\n")
    message = refused("plum_empty")
    assert "has no class 'plum_empty'" in message
    assert str(Path.cwd() / "plum_empty.py") in message
    assert refused("plum_empty:value") == "'plum_empty:value' is a int, not a class that makes a model"


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("Iris.py", "'Iris.py' is a file; give an import path: Iris"),
        ("models/Iris.py", "'models/Iris.py' is a file; give an import path: Iris"),
        ("", "is no import path"),
        ("pkg:", "is no import path"),
        (".Iris", "is no import path"),
    ],
)
def test_what_is_no_path_is_refused_with_a_hint(path: str, hint: str):
    """A file name, and what cannot be a path, say what to write instead."""
    assert hint in refused(path)


class Tuned:
    def __init__(self, depth, *, rate=0.1):
        self.said = (depth, rate)


class Open:
    def __init__(self, **kwargs):
        self.said = kwargs


def test_parameters_reach_the_constructor():
    """The parameters are the constructor's keyword arguments."""
    assert loader.construct(Tuned, {"depth": 3, "rate": 0.5}).said == (3, 0.5)
    assert loader.construct(Open, {"a": 1}).said == {"a": 1}
    assert loader.construct(dict, {"a": 1}) == {"a": 1}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"depth": 3, "size": 1}, "Tuned has no parameter 'size'; it takes depth, rate"),
        ({}, "Tuned needs the parameter 'depth'"),
    ],
)
def test_parameters_that_do_not_fit_are_named(parameters: dict[str, object], message: str):
    """An unknown parameter and a missing one stop the start-up with its name."""
    with pytest.raises(ModelLoadError, match=message):
        loader.construct(Tuned, parameters)


def test_the_constructors_own_exception_is_left_alone():
    """What the constructor raises comes out as it is, with its traceback; a TypeError inside it too."""

    class Fails:
        def __init__(self, depth):
            raise TypeError("inside")

    with pytest.raises(TypeError, match="inside") as caught:
        loader.construct(Fails, {"depth": 1})
    assert caught.traceback[-1].name == "__init__"


def test_load_is_called_once():
    """`load()` is called once; an object without one is loaded already."""

    class Counts:
        loads = 0

        def load(self):
            self.loads += 1

    counts = Counts()
    loader.load(counts)
    loader.load(object())
    assert counts.loads == 1


@pytest.mark.parametrize("error", [AttributeError, NotImplementedError, SeldonNotImplementedError, KeyError])
def test_what_load_raises_propagates(error: type[Exception]):
    """Nothing that a user's load() raises is swallowed: neither AttributeError nor NotImplementedError."""

    class Fails:
        def load(self):
            raise error("in load")

    with pytest.raises(error):
        loader.load(Fails())


def test_the_default_load_of_the_base_class_may_be_called():
    """SeldonComponent's own load() is no hook, and an older one's NotImplementedError is ignored where it comes from."""

    class Old:
        class SeldonComponent:
            def load(self):
                raise NotImplementedError

    Old.SeldonComponent.load.__qualname__ = "SeldonComponent.load"
    Old.SeldonComponent.load.__code__ = Old.SeldonComponent.load.__code__.replace(co_qualname="SeldonComponent.load")

    class Calls(Old.SeldonComponent):
        def load(self):
            self.begun = True
            super().load()

    calls = Calls()
    loader.load(calls)
    assert calls.begun
    loader.load(SeldonComponent())


def test_an_asynchronous_load_is_refused():
    """`async def load` cannot be run before there is a loop, and is not forgotten silently."""

    class Later:
        async def load(self):
            pass

    with pytest.raises(ModelLoadError, match="load\\(\\) is asynchronous"):
        loader.load(Later())


def test_model_dir_is_searched_and_handed_over(tmp_path, monkeypatch):
    """The class may lie in `model_dir`; a constructor that takes the directory gets it, unless parameters say otherwise."""
    (tmp_path / "in_model_dir.py").write_text(
        "class Kept:\n    def __init__(self, model_uri=''):\n        self.at = model_uri\n"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    found = loader.find("in_model_dir:Kept", str(tmp_path))
    parameters = loader.with_directory(found, {}, str(tmp_path))
    assert loader.construct(found, parameters).at == str(tmp_path)
    assert loader.with_directory(found, {"model_uri": "own"}, str(tmp_path)) == {"model_uri": "own"}
    assert loader.with_directory(dict, {"a": 1}, str(tmp_path)) == {"a": 1}
    assert sys.path[-1] == str(tmp_path)

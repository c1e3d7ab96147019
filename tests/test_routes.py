from __future__ import annotations

import pytest

from prefork.endpoints import ROUTES
from prefork.errors import MethodNotAllowed, NotFound
from prefork.routes import Route, Router


def router() -> Router:
    def endpoint(site, request):
        raise AssertionError

    rows = [("/a", ("GET",)), ("/a", ("POST",)), ("/m/{model}", ("GET",)), ("/m/{model}:predict", ("POST",))]
    return Router([Route(path, methods, endpoint, "v2", "") for path, methods in rows])


def test_exact_path_is_found_by_its_method():
    """An exact path gives the route of the method that was asked for."""
    found, _ = router().find("POST", "/a")
    assert found is not None
    assert found.methods == ("POST",)


def test_variables_are_named():
    """The variable part of a path comes back under its name."""
    assert router().find("GET", "/m/iris")[1] == {"model": "iris"}


def test_colon_ends_a_variable():
    """`:predict` belongs to the path, not to the model's name."""
    found, params = router().find("POST", "/m/iris:predict")
    assert found is not None
    assert found.path == "/m/{model}:predict"
    assert params == {"model": "iris"}


def test_head_is_served_where_get_is():
    """HEAD finds the route of GET."""
    assert router().find("HEAD", "/m/iris")[0] is not None


def test_unknown_path_is_not_found():
    """A path that no row matches is a 404, also with a trailing slash or a deeper path."""
    for path in ("/b", "/a/", "/m/x/y", "/m/", "a", ""):
        assert router().find("GET", path)[0] is None
        assert isinstance(router().refusal("GET", path), NotFound)


def test_wrong_method_names_the_right_ones():
    """A known path under another method is a 405 whose Allow header lists those it takes."""
    refusal = router().refusal("DELETE", "/a")
    assert isinstance(refusal, MethodNotAllowed)
    assert refusal.headers == (("Allow", "GET, HEAD, POST"),)


def test_memory_of_paths_is_bounded():
    """A client that makes up paths does not make the router grow without end."""
    tested = router()
    for number in range(10_000):
        tested.find("GET", f"/m/{number}")
    assert tested._at.cache_info().currsize <= 4096


@pytest.mark.parametrize("route", ROUTES, ids=lambda r: r.path)
def test_every_route_says_what_it_is(route: Route):
    """Each row of the table has methods and a sentence for the documents."""
    assert route.methods
    assert route.summary.endswith((".", "503", "it does"))

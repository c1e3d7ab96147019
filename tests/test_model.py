"""A user's object as a model: its hooks, their arguments, their order, and what stands in for those it lacks."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vector_models
from prefork.compat.proto import prediction_pb2
from prefork.compat.user_model import SeldonComponent, SeldonNotImplementedError, SeldonResponse
from prefork.errors import BadAnswer, BadMetric, BadRequest, ModelLoadError, NotImplementedHere, PreforkError
from prefork.http import Request
from prefork.instance import LocalInstance
from prefork.model import Model
from prefork.payload import Feedback, Kind, ModelSpec, Payload
from prefork.protocols import seldon
from vectors import same_json

X = np.array([[1, 2]])
VECTORS = [
    json.loads(line) for line in (Path(__file__).parent / "vectors" / "seldon_v1.jsonl").read_text().splitlines()
]
METHODS = {
    "/predict": "predict",
    "/transform-input": "transform_input",
    "/transform-output": "transform_output",
    "/route": "route",
    "/aggregate": "aggregate",
    "/send-feedback": "send_feedback",
}


def matrix(method: str = "predict", **fields: Any) -> Payload:
    return Payload(Kind.TENSOR, X, method, **{"names": ["a", "b"], **fields})


def answered(user_object: object, request: Payload | None = None) -> Payload:
    """What a model answers; the class or the object may be given."""
    user_object = user_object() if isinstance(user_object, type) else user_object
    return Model(user_object, "m").answer(request or matrix())


def with_hooks(**hooks: Any) -> object:
    """An object of a class with these methods."""
    return type("Own", (), hooks)()


EXPECTED = [line for line in VECTORS if line["request"]["path"] in METHODS and line.get("prefork", {}) is not None]


@pytest.mark.parametrize("line", EXPECTED, ids=lambda line: line["id"])
def test_recorded_requests(line: dict[str, Any]):
    """Each recorded request gives the recorded answer, with no HTTP around the model."""
    wanted = line.get("prefork") or line["response"]
    asked = line["request"]
    method = METHODS[asked["path"]]
    instance = LocalInstance(Model(vector_models.build(line["model"])(), "m"))
    headers = {b"content-type": (asked["content_type"] or "").encode()}
    try:
        http = Request(asked["method"], asked["path"], b"", headers, [(asked["body"] or "").encode()])
        payload = seldon.decode(http, method, raw=method in instance.spec.raw)
        response = seldon.encode(next(instance.infer(payload)), payload, seldon.Context())
    except PreforkError as error:
        response = seldon.encode_error(error)
    assert response.status == wanted["status"]
    if response.status == 200:
        body = wanted["body"] if isinstance(wanted["body"], str) else json.dumps(wanted["body"])
        assert same_json(b"".join(response.body), body, line["id"])


# --- arguments ---------------------------------------------------------------------------------------------------


def everything(self, X, names, meta=None):
    return {"names": names, "meta": meta}


def keywords(self, X, names, **kwargs):
    return {"names": names, "meta": kwargs["meta"]}


def defaults(self, X, names=None, meta=None, threshold=0.5):
    return {"names": names, "meta": meta}


def positional(self, *args, **kwargs):
    return {"names": args[1], "meta": kwargs["meta"]}


def only_positional(self, X, names, /):
    return {"names": names}


def no_meta(self, features, feature_names):
    return {"names": feature_names}


def only_x(self, X):
    return {}


def x_and_meta(self, X, meta):
    return {"meta": meta}


def keyword_meta(self, X, *, meta):
    return {"meta": meta}


def another_third(self, X, names, threshold=0.5):
    assert threshold == 0.5
    return {"names": names}


@functools.wraps(no_meta)
def wrapped(*args):
    return no_meta(*args)


@pytest.mark.parametrize("method", ["predict", "transform_input", "transform_output"])
@pytest.mark.parametrize(
    ("hook", "gets"),
    [
        (everything, {"names", "meta"}),
        (keywords, {"names", "meta"}),
        (defaults, {"names", "meta"}),
        (positional, {"names", "meta"}),
        (only_positional, {"names"}),
        (no_meta, {"names"}),
        (only_x, set()),
        (x_and_meta, {"meta"}),
        (keyword_meta, {"meta"}),
        (another_third, {"names"}),
        (wrapped, {"names"}),
    ],
)
def test_a_hook_gets_what_its_signature_takes(method: str, hook: Any, gets: set[str]):
    """Names go by position and meta by keyword, each only to a hook that takes it."""
    meta = {"puid": "p"}
    answer = answered(with_hooks(**{method: hook}), matrix(method, meta=meta))
    assert answer.value == {name: value for name, value in {"names": ["a", "b"], "meta": meta}.items() if name in gets}


def test_callables_of_every_sort_are_hooks():
    """A partial, a callable object and a static method are called as a method is."""

    class Callable:
        def __call__(self, X, names):
            return [names]

    assert answered(with_hooks(predict=staticmethod(lambda X, names: [names]))).value.tolist() == [["a", "b"]]
    for hook in (functools.partial(lambda extra, X, names: [names], 1), Callable()):
        user_object = with_hooks()
        user_object.predict = hook
        assert answered(user_object).value.tolist() == [["a", "b"]]


def test_a_type_error_inside_is_not_tried_again():
    """A TypeError of the user's own code comes out, and the code ran once."""
    calls: list[int] = []

    def predict(self, X, names, meta=None):
        calls.append(1)
        raise TypeError("mine")

    with pytest.raises(TypeError, match="mine"):
        answered(with_hooks(predict=predict))
    assert calls == [1]


@pytest.mark.parametrize("hook", [lambda self: 1, lambda self, X, names, threshold: 1, lambda self, X, *, depth: 1])
def test_a_predict_that_cannot_be_called_stops_the_start(hook: Any):
    """A predict that wants more than there is, or nothing at all, is refused before it is served."""
    with pytest.raises(ModelLoadError, match="predict cannot be called"):
        Model(with_hooks(predict=hook), "m")


def test_meta_is_the_requests_own_object():
    """What the model writes into the meta is seen; where the request has none, it is false."""

    def predict(self, X, names, meta=None):
        had = bool(meta)
        meta["tags"] = {"seen": 1}
        return [[had]]

    for meta, had in (({"puid": "1"}, True), ({}, False), (None, False)):
        request = matrix(meta=meta)
        assert answered(with_hooks(predict=predict), request).value.tolist() == [[had]]
        assert dict(request.meta) == {**(meta or {}), "tags": {"seen": 1}}


def test_a_model_can_ask_whether_anybody_waits():
    """`meta["cancelled"]()` tells whether nobody waits for the answer any more, and is no item of meta."""

    def predict(self, X, names, meta=None):
        return [[meta["cancelled"](), "cancelled" in meta, len(meta)]]

    for meta in ({"puid": "1"}, None):
        for cancelled in (lambda: True, lambda: False):
            request = matrix(meta=meta)
            request.cancelled = cancelled
            assert answered(with_hooks(predict=predict), request).value.tolist() == [
                [cancelled(), False, len(meta or ())]
            ]


@pytest.mark.parametrize(
    ("kind", "value"), [(Kind.TEXT, "s"), (Kind.BYTES, b"b"), (Kind.JSON, {"a": 1}), (Kind.TENSOR, X)]
)
def test_names_are_a_list_when_there_are_none(kind: Kind, value: Any):
    """X is whatever came; its names are an empty list where the request has none."""
    seen = []

    def predict(self, X, names):
        seen.append((X, names))
        return []

    answered(with_hooks(predict=predict), Payload(kind, value))
    assert seen[0][0] is value
    assert seen[0][1] == []


def test_a_message_without_data_is_a_bad_request():
    """A plain hook cannot take a message that has no data."""
    with pytest.raises(BadRequest, match=r"Invalid request data type: \{'customData': 1\}"):
        answered(with_hooks(predict=only_x), Payload(Kind.RAW, {"customData": 1}, message={"customData": 1}))


def bytes_array(*elements: bytes) -> np.ndarray:
    return np.array(elements, dtype=object)


@pytest.mark.parametrize(
    ("tensors", "x", "names"),
    [
        ({"x": X}, [[1, 2]], []),
        ({"a": np.array([1, 2]), "b": np.array([[0.5], [1.5]])}, [[1.0, 0.5], [2.0, 1.5]], ["a", "b"]),
        ({"a": np.array([1]), "b": np.array([2])}, [[1, 2]], ["a", "b"]),
        ({"t": bytes_array("é".encode(), b"b")}, ["é", "b"], []),
        ({"t": bytes_array(b"\xff")}, [b"\xff"], []),
        ({"t": bytes_array(b"a", b"b"), "n": np.array([1, 2])}, [["a", 1], ["b", 2]], ["t", "n"]),
    ],
)
def test_named_tensors_are_x(tensors: dict[str, Any], x: list[Any], names: list[str]):
    """One named tensor is X, several columns of one length are its columns with their names; text is str."""
    seen = []

    def predict(self, X, names):
        seen.append((X.tolist(), names))
        return X

    answered(with_hooks(predict=predict), Payload(Kind.TENSORS, tensors))
    assert seen == [(x, names)]


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {"a": np.zeros(2), "b": np.zeros(3)},
        {"a": np.zeros((2, 2)), "b": np.zeros(2)},
        {"a": np.zeros(()), "b": np.zeros(())},
    ],
)
def test_tensors_that_make_no_columns_are_refused(tensors: dict[str, Any]):
    """Several tensors that are not columns of one length are a 400 that shows their shapes."""
    with pytest.raises(BadRequest, match="columns of one X") as caught:
        answered(with_hooks(predict=only_x), Payload(Kind.TENSORS, tensors))
    for name, array in tensors.items():
        assert f"{name} {list(array.shape)}" in caught.value.message


# --- the other methods -------------------------------------------------------------------------------------------


def test_aggregate_gets_lists():
    """aggregate gets the list of Xs and the list of their names."""
    parts = [matrix(), Payload(Kind.TEXT, "s")]
    hooks = with_hooks(aggregate=lambda self, Xs, names: {"n": len(Xs), "names": names})
    assert answered(hooks, Payload(Kind.MANY, parts, "aggregate")).value == {"n": 2, "names": [["a", "b"], []]}
    hooks = with_hooks(aggregate=lambda self, Xs: Xs[1])
    assert answered(hooks, Payload(Kind.MANY, parts, "aggregate")).value == "s"
    with pytest.raises(BadRequest, match="list of messages"):
        answered(hooks, matrix("aggregate"))


FEEDBACK = Feedback(np.array([[1.0]]), ["a"], 0.5, np.array([[2.0]]), 3)


@pytest.mark.parametrize(
    ("hook", "got"),
    [
        (lambda self, features, names, reward, truth, routing: [names, reward, routing], [["a"], 0.5, 3]),
        (lambda self, features, names, reward, truth, routing=None: [reward, routing], [0.5, 3]),
        (lambda self, features, names, reward, truth, *, routing: [reward, routing], [0.5, 3]),
        (lambda self, features, names, reward, truth, branch: [reward, branch], [0.5, 3]),
        (lambda self, features, names, reward, truth, **more: [reward, more["routing"]], [0.5, 3]),
        (lambda self, features, names, reward, truth: [reward, truth.tolist()], [0.5, [[2.0]]]),
        (lambda self, features, names, reward: [reward], [0.5]),
        (lambda self, *all, **more: [all[2], more["routing"]], [0.5, 3]),
        (lambda self, *all: [all[2], all[4]], [0.5, 3]),
    ],
)
def test_feedback_goes_as_the_signature_takes_it(hook: Any, got: list[Any]):
    """send_feedback gets what it takes, the routing by keyword or as the fifth."""
    answer = answered(with_hooks(send_feedback=hook), Payload(Kind.FEEDBACK, FEEDBACK, "send_feedback"))
    assert answer.value.tolist() == got


def test_feedback_without_an_answer_is_empty():
    """A send_feedback that returns nothing answers an empty array; one that got no feedback is a 400."""
    hooks = with_hooks(send_feedback=lambda self, *all: None)
    assert answered(hooks, Payload(Kind.FEEDBACK, FEEDBACK, "send_feedback")).value.tolist() == []
    with pytest.raises(BadRequest, match="takes a feedback"):
        answered(hooks, matrix("send_feedback"))


@pytest.mark.parametrize("branch", [2, np.int64(2), np.uint8(2), SeldonResponse(2, tags={"a": 1})])
def test_a_route_is_an_integer(branch: Any):
    """A route is any integer, numpy's too, and is answered as [[n]]."""
    answer = answered(with_hooks(route=lambda self, X, names: branch), matrix("route"))
    assert answer.value.tolist() == [[2]]


@pytest.mark.parametrize("branch", [1.0, True, np.bool_(True), "1", None, [1]])
def test_any_other_route_is_refused(branch: Any):
    """A route that is no integer is a 500 that shows it."""
    with pytest.raises(BadAnswer, match="must be int but got"):
        answered(with_hooks(route=lambda self, X, names: branch), matrix("route"))


class Component(SeldonComponent):
    pass


class Refusing:
    """Every hook is there and says that it is not implemented."""

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)

        def refuse(*args, **kwargs):
            raise SeldonNotImplementedError(f"{name} is not implemented")

        return refuse


@pytest.mark.parametrize("cls", [object, Component, Refusing])
def test_missing_hooks_have_stand_ins(cls: type):
    """Without a hook predict answers an empty array, a transformer its input, feedback an empty array."""
    message = {"strData": "s"}
    assert answered(cls, Payload(Kind.TEXT, "s", message=message)).value.tolist() == []
    for method in ("transform_input", "transform_output"):
        answer = answered(cls, Payload(Kind.TEXT, "s", method, message=message))
        assert (answer.kind, answer.value) == (Kind.TEXT, "s")
    asked = Payload(Kind.FEEDBACK, FEEDBACK, "send_feedback", message={"reward": 1})
    assert answered(cls, asked).value.tolist() == []


@pytest.mark.parametrize(
    ("cls", "route", "aggregate", "health"),
    [
        (object, "Route not defined", "Aggregate not defined", "healthy"),
        (Component, "route is not implemented", "aggregate is not implemented", "not implemented - assuming healthy"),
        (Refusing, "route is not implemented", "aggregate is not implemented", "not implemented - assuming healthy"),
    ],
)
def test_missing_hooks_that_have_none(cls: type, route: str, aggregate: str, health: str):
    """Without a hook route and aggregate are a 400 that says so, and the model is healthy."""
    with pytest.raises(BadRequest, match=route):
        answered(cls, matrix("route"))
    with pytest.raises(BadRequest, match=aggregate):
        answered(cls, Payload(Kind.MANY, [matrix()], "aggregate"))
    assert answered(cls, Payload(Kind.JSON, None, "health_status")).value == health


def test_health_status_answers_anything():
    """health_status takes nothing and may answer any payload; the raw one answers as it is."""
    asked = Payload(Kind.JSON, None, "health_status")
    assert answered(with_hooks(health_status=lambda self: [1, 2]), asked).value.tolist() == [1, 2]
    answer = answered(with_hooks(health_status_raw=lambda self: {"x": 1}), asked)
    assert (answer.kind, answer.value) == (Kind.RAW, {"x": 1})


def test_an_unknown_method_is_refused():
    """A method that Seldon does not have is a 501."""
    with pytest.raises(NotImplementedHere, match="'explain'"):
        answered(object, matrix("explain"))


def test_what_is_not_callable_is_no_hook():
    """A plain attribute with a hook's name, such as `tags` or `metrics`, is no hook."""
    answer = answered(with_hooks(predict=only_x, tags={"a": 1}, metrics=[], route=3))
    assert (answer.tags, answer.metrics) == (None, None)


# --- whole messages ----------------------------------------------------------------------------------------------

MESSAGE = {"data": {"ndarray": [[1, 2]]}, "extra": None}


def whole(method: str, **fields: Any) -> Payload:
    return matrix(method, message=MESSAGE, **fields)


@pytest.mark.parametrize("method", ["predict", "transform_input", "transform_output", "route", "aggregate"])
def test_raw_hooks_get_the_message_and_answer_as_they_like(method: str):
    """A raw hook gets the parsed JSON itself, and what it returns is the answer."""
    hooks = {f"{method}_raw": lambda self, msg: [msg is MESSAGE], method: only_x}
    model = Model(with_hooks(**hooks), "m")
    answer = model.answer(whole(method))
    assert (answer.kind, answer.value) == (Kind.RAW, [True])
    assert model.spec.raw == {method}


def test_rest_hooks_win_over_raw_ones():
    """The deprecated *_rest wins over *_raw, and *_raw over the plain hook."""
    hooks = {"predict_raw": lambda self, msg: "raw", "predict": only_x}
    assert answered(with_hooks(**hooks), whole("predict")).value == "raw"
    assert answered(with_hooks(**hooks, predict_rest=lambda self, msg: "rest"), whole("predict")).value == "rest"


def test_a_raw_hook_that_is_not_implemented_falls_through():
    """SeldonNotImplementedError hands over to the next hook."""

    def refuse(self, msg):
        raise SeldonNotImplementedError("no")

    async def refuse_later(self, msg):
        raise SeldonNotImplementedError("no")

    for hook in (refuse, refuse_later):
        model = Model(with_hooks(predict_raw=hook, predict=lambda self, X, names: "plain"), "m")
        assert model.answer(whole("predict")).value == "plain"
        model.close()


def test_an_async_raw_hook_answers():
    """An asynchronous raw hook is waited for."""

    async def predict_raw(self, msg):
        return {"strData": "later"}

    model = Model(with_hooks(predict_raw=predict_raw), "m")
    answer = model.answer(whole("predict"))
    assert (answer.kind, answer.value) == (Kind.RAW, {"strData": "later"})
    model.close()


def test_raw_hooks_take_seldons_messages_only():
    """A request of another protocol goes to the plain hook; where there is none it is a 501."""
    raw = lambda self, msg: "raw"  # noqa: E731
    assert answered(with_hooks(predict_raw=raw, predict=lambda self, X: "plain"), matrix()).value == "plain"
    with pytest.raises(NotImplementedHere, match="predict_raw"):
        answered(with_hooks(predict_raw=raw), matrix())
    assert answered(with_hooks(predict_raw=raw), Payload(Kind.RAW, b"passed through")).value == "raw"


def test_feedback_raw_gets_a_message_with_attributes():
    """send_feedback_raw gets an object with attributes, and may return one or a dict."""
    message = {"request": {"data": {"names": ["a"], "ndarray": [[1]]}}, "reward": 0.5}
    asked = Payload(Kind.FEEDBACK, FEEDBACK, "send_feedback", message=message)

    def as_message(self, feedback):
        assert feedback.request.data.ndarray == [[1]]
        return prediction_pb2.SeldonMessage(strData=f"{feedback.reward} {feedback.truth.strData!r}")

    assert answered(with_hooks(send_feedback_raw=as_message), asked).value == {"strData": "0.5 ''"}
    assert answered(with_hooks(send_feedback_raw=lambda self, f: {"x": f.reward}), asked).value == {"x": 0.5}
    rest = with_hooks(send_feedback_rest=lambda self, text: {"text": text})
    assert json.loads(answered(rest, asked).value["text"]) == message


# --- names, tags, metrics ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (lambda self: ["p", "q"], ["p", "q"]),
        (["p", "q"], ["p", "q"]),
        (lambda self: np.array(["p", "q"]), ["p", "q"]),
        (("p", "q"), ["p", "q"]),
        (lambda self: np.array([0, 1]), [0, 1]),
        (None, None),
    ],
)
def test_class_names_name_the_columns(names: Any, shown: list[Any] | None):
    """class_names, a method or an attribute, names the columns of an answer with more than one axis."""
    user_object = with_hooks(predict=lambda self, X, names: X, class_names=names)
    assert answered(user_object).names == shown
    assert answered(user_object, Payload(Kind.TENSOR, np.array([1]))).names is None


def test_class_names_may_come_late():
    """class_names may be set while loading, or later, also over a base class that has the method."""

    class Late(SeldonComponent):
        def predict(self, X, names):
            return X

        def load(self):
            self.class_names = ["p", "q"]

    model = Model(Late(), "m")
    assert model.answer(matrix()).names is None
    model.load()
    assert model.answer(matrix()).names == ["p", "q"]


def test_tags_and_metrics_are_in_the_answer():
    """tags() and metrics() are asked after each answer; None is nothing; a SeldonResponse's come on top."""
    counter = {"key": "k", "type": "COUNTER", "value": 1}
    hooks = {
        "predict": lambda self, X, names: SeldonResponse([[1]], tags={"b": 3}, metrics=[{**counter, "key": "r"}]),
        "tags": lambda self: {"a": 1, "b": 2},
        "metrics": lambda self: [counter],
    }
    answer = answered(with_hooks(**hooks))
    assert answer.tags == {"a": 1, "b": 3}
    assert [metric["key"] for metric in answer.metrics or ()] == ["k", "r"]
    empty = answered(with_hooks(predict=only_x, tags=lambda self: None, metrics=lambda self: None))
    assert (empty.tags, empty.metrics) == (None, None)
    bare = answered(with_hooks(predict=lambda self, X, names: SeldonResponse("s")))
    assert (bare.value, bare.tags, bare.metrics) == ("s", None, None)


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("predict", "predict"),
        ("transform_input", "inputtransform"),
        ("transform_output", "outputtransform"),
        ("route", "router"),
        ("aggregate", "aggregate"),
        ("send_feedback", "feedback"),
        ("health_status", "health"),
    ],
)
def test_tagged_metrics_say_their_method(method: str, name: str):
    """A metric with tags carries its method as one more, in a copy: the user's own dict is not written to."""
    shared = {"key": "k", "type": "GAUGE", "value": 1, "tags": {"a": "b"}}
    user_object = with_hooks(
        **{method: lambda self, *all, **more: 1 if method == "route" else "s"}, metrics=lambda self: [shared]
    )
    value = {"aggregate": (Kind.MANY, [matrix()]), "send_feedback": (Kind.FEEDBACK, FEEDBACK)}.get(
        method, (Kind.TEXT, "s")
    )
    answer = answered(user_object, Payload(*value, method))
    assert answer.metrics == [{**shared, "tags": {"a": "b", "method": name}}]
    assert shared["tags"] == {"a": "b"}


@pytest.mark.parametrize(
    "metrics", [[{"key": "k", "value": 1}], [{"key": "k", "type": "X", "value": 1}], ["text"], {"key": "k"}, 3]
)
@pytest.mark.parametrize("source", ["metrics", "response"])
def test_what_is_no_metric_is_refused(metrics: Any, source: str):
    """A metric without its fields, of another type or with no number is a 500 that quotes it."""
    hooks: dict[str, Any] = {"predict": lambda self, X, names: X, "metrics": lambda self: metrics}
    if source == "response":
        hooks = {"predict": lambda self, X, names: SeldonResponse(X, metrics=metrics)}
    with pytest.raises(BadMetric) as caught:
        answered(with_hooks(**hooks))
    assert caught.value.message == f"Bad metric created during request: {json.dumps(metrics)}"


@pytest.mark.parametrize("tags", ["x", [("a", 1)], 3])
def test_tags_must_be_a_dict(tags: Any):
    """Tags that are no mapping are a 500 that names their source and type."""
    with pytest.raises(BadAnswer, match=r"the tags of tags\(\) must be a dict, not"):
        answered(with_hooks(predict=only_x, tags=lambda self: tags))
    with pytest.raises(BadAnswer, match="the tags of the SeldonResponse must be a dict, not"):
        answered(with_hooks(predict=lambda self, X: SeldonResponse(X, tags=tags)))


def test_the_order_is_seldons():
    """The method runs first, then metrics(), class_names and tags(), once each."""
    order: list[str] = []

    def noted(name: str, value: Any) -> Any:
        return lambda self, *args: order.append(name) or value

    answered(
        with_hooks(
            tags=noted("tags", {}),
            class_names=noted("names", []),
            metrics=noted("metrics", []),
            predict=noted("predict", X),
        )
    )
    assert order == ["predict", "metrics", "names", "tags"]


def test_parts_of_a_stream_carry_their_own():
    """A part of a stream has class names and its own SeldonResponse's tags; tags() and metrics() are for one answer."""

    def predict(self, X, names):
        yield SeldonResponse(X, tags={"part": 1})
        yield X

    hooks = with_hooks(predict=predict, tags=lambda self: {"a": 1}, metrics=lambda self: 3, class_names=["p", "q"])
    parts = list(Model(hooks, "m").stream(matrix()))
    assert [(part.names, part.tags, part.metrics) for part in parts] == [
        (["p", "q"], {"part": 1}, None),
        (["p", "q"], None, None),
    ]


def test_hooks_are_found_again_after_load():
    """A hook that load() makes is found, and load() is called once."""

    class Makes:
        loads = 0

        def load(self):
            self.loads += 1
            self.predict = lambda X, names: "made"

    makes = Makes()
    model = Model(makes, "m")
    assert model.answer(matrix()).value.tolist() == []
    model.load()
    assert model.answer(matrix()).value == "made"
    assert makes.loads == 1


def test_the_spec_of_seldons_style():
    """A class of Seldon's style takes whatever comes, and says which hooks are raw."""
    model = Model(with_hooks(predict=only_x, route_raw=lambda self, msg: msg), "name", "7")
    assert model.spec == ModelSpec("name", "7", raw=frozenset({"route"}))
    assert model.custom_service is None
    assert Model(with_hooks(custom_service=lambda self: None), "m").custom_service is not None


def test_a_hook_without_a_signature_gets_everything():
    """A builtin that does not tell its signature gets X, the names and the meta."""
    user_object = with_hooks()
    user_object.predict = "{0[0][1]} {1[0]} {meta}".format
    assert answered(user_object).value == "2 a None"


class Sly:
    """Returns a coroutine from a plain function."""

    def health_status(self):
        async def later():
            return "fine"

        return later()


def test_a_minor_async_hook_does_not_make_the_model_async():
    """Only what a model mainly does decides where it runs; another asynchronous hook is waited for all the same."""

    class Mixed(Sly):
        def predict(self, X, names):
            return X

    model = Model(Mixed(), "m")
    assert not model.is_async
    assert model.answer(Payload(Kind.JSON, None, "health_status")).value == "fine"
    model.close()

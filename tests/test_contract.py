"""What a model answers, raises, streams, sees and keeps is the same in an HTTP worker and in a process of its own."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import weakref
from contextlib import aclosing

import numpy as np
import pytest

import contract_models
from instance_process import InstanceProcess
from prefork.errors import (
    BadAnswer,
    BadRequest,
    ModelFailed,
    NotFound,
    NotImplementedHere,
    PreforkError,
    Unavailable,
)
from prefork.http import Request
from prefork.instance import LocalInstance
from prefork.model import Model
from prefork.model.reschedule import Reschedule
from prefork.payload import Kind, Payload
from prefork.protocols import mlflow, seldon, v1, v2
from running import wait_until

WAYS = ("worker", "process", "loop")


class Hosts:
    """The instances that were started, each once."""

    def __init__(self):
        self.processes = {}

    def process(self, class_):
        if class_ not in self.processes:
            self.processes[class_] = InstanceProcess(f"contract_models:{class_}").serve()
        return self.processes[class_]

    def of(self, way, class_):
        if way == "worker":
            model = Model(getattr(contract_models, class_)(), "m")
            model.load()
            return Host(LocalInstance(model), model.is_async)
        return Host(self.process(class_).instance(), way == "loop")

    def close(self):
        for each in self.processes.values():
            each.close()


class Host:
    """One way to ask one class."""

    def __init__(self, instance, is_async):
        self.instance = instance
        self.is_async = is_async

    def answers(self, request):
        """All answers."""
        return self.until(request, lambda _answer: True)

    def until(self, request, goes_on):
        """The answers for as long as that is wanted; then it is hung up."""
        if self.is_async:
            return asyncio.run(self._until(request, goes_on))
        try:
            return _until(self.instance.infer(request), goes_on)
        except Reschedule:
            return _until(self.instance.infer(request), goes_on)

    def ask(self, value, method="predict", kind=None, **more):
        """The only answer."""
        (found,) = self.answers(payload(value, method, kind, **more))
        return found

    async def _until(self, request, goes_on):
        found = []
        try:
            async with aclosing(self.instance.infer_async(request)) as answers:
                async for answer in answers:
                    found.append(answer)
                    if not goes_on(answer):
                        break
        except Reschedule:
            async with aclosing(self.instance.infer_async(request)) as answers:
                found = [answer async for answer in answers]
        return found


def _until(answers, goes_on):
    found = []
    for answer in answers:
        found.append(answer)
        if not goes_on(answer):
            break
    answers.close()
    return found


def payload(value, method="predict", kind=None, **more):
    kinds = {str: Kind.TEXT, bytes: Kind.BYTES, dict: Kind.TENSORS, np.ndarray: Kind.TENSOR}
    return Payload(kinds[type(value)] if kind is None else kind, value, method, **more)


@pytest.fixture(scope="module")
def hosts():
    """The processes of this module."""
    found = Hosts()
    yield found
    found.close()


@pytest.fixture(params=WAYS)
def way(request):
    """In an HTTP worker; in a process, asked by a thread; in a process, asked on an event loop."""
    return request.param


@pytest.fixture
def plain(hosts, way):
    """Seldon's style."""
    return hosts.of(way, "Plain")


def body(host, text, decode, encode):
    """What a client gets for a text: the body, or the error."""
    request, made = decode(text)
    try:
        (answer,) = host.answers(request)
        return encode(answer, made)
    except PreforkError as error:
        return type(error).__name__, error.status, error.reason, error.message


def posted(value):
    """A request whose body is that JSON."""
    return Request("POST", "/", b"", {b"content-type": b"application/json"}, (json.dumps(value).encode(),))


def by_seldon(host, text):
    def decode(text):
        request = seldon.decode(posted({"strData": text}), "predict")
        return request, request

    def encode(answer, request):
        response = seldon.encode(answer, request, seldon.Context())
        return response.status, b"".join(response.body)

    return body(host, text, decode, encode)


def by_v2(host, text):
    data = {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1], "data": [text]}]}

    def decode(_text):
        request, wanted = v2.decode(posted(data), host.instance.spec)
        request.kind, request.value = Kind.TEXT, text
        return request, wanted

    def encode(answer, wanted):
        response = v2.encode(answer, wanted, host.instance.spec)
        return response.status, b"".join(response.body)

    return body(host, text, decode, encode)


def by_v1(host, text):
    def decode(_text):
        request, form = v1.decode(posted({"instances": [1]}), host.instance.spec)
        request.kind, request.value = Kind.TEXT, text
        return request, form

    return body(host, text, decode, lambda answer, form: b"".join(v1.encode(answer, form, host.instance.spec).body))


def by_mlflow(host, text):
    def decode(_text):
        request, form = mlflow.decode(posted({"inputs": [1]}), host.instance.spec)
        request.kind, request.value = Kind.TEXT, text
        return request, form

    return body(host, text, decode, lambda answer, form: b"".join(mlflow.encode(answer, form, host.instance.spec).body))


@pytest.mark.parametrize("text", contract_models.RESULTS)
def test_results(hosts, text):
    """Whatever predict returns, every protocol writes the same body of it, or refuses it in the same words."""
    worker, process = hosts.of("worker", "Exotic"), hosts.of("process", "Exotic")
    for encoded in (by_seldon, by_v2, by_v1, by_mlflow):
        assert encoded(process, text) == encoded(worker, text), encoded.__name__


@pytest.mark.parametrize("text", contract_models.REFUSED)
def test_refused(hosts, text):
    """What no protocol has a form for is a BadAnswer that names its type."""
    process = hosts.of("process", "Refused")
    for encoded in (by_seldon, by_v2, by_v1, by_mlflow):
        name, status, reason, message = encoded(process, text)
        assert (name, status, reason) == ("BadAnswer", 500, "MICROSERVICE_BAD_DATA")
        assert contract_models.REFUSED[text][1] in message


@pytest.mark.parametrize(
    ("what", "kind", "status", "reason", "message"),
    [
        ("fail", ModelFailed, 500, "MICROSERVICE_INTERNAL_ERROR", "three"),
        ("fail_silently", ModelFailed, 500, "MICROSERVICE_INTERNAL_ERROR", "KeyError"),
        ("refuse", BadRequest, 400, "MICROSERVICE_BAD_DATA", "not like this"),
        ("busy", PreforkError, 503, "BUSY", "come back later"),
        ("seldon", PreforkError, 418, "TEA", "teapot"),
        ("panic", ModelFailed, 500, "MICROSERVICE_INTERNAL_ERROR", "index out of bounds"),
        ("close", ModelFailed, 500, "MICROSERVICE_INTERNAL_ERROR", "closed"),
        ("give_up", ModelFailed, 500, "MICROSERVICE_INTERNAL_ERROR", "given up"),
        (
            "leave",
            ModelFailed,
            500,
            "MICROSERVICE_INTERNAL_ERROR",
            "the model called sys.exit(7), which ends nothing here",
        ),
    ],
)
def test_errors(plain, what, kind, status, reason, message):  # noqa: PLR0917
    """What predict raises has the same class, status, reason and message, and the next request is answered."""
    with pytest.raises(kind) as caught:
        plain.ask(what)
    assert (caught.value.status, caught.value.reason, caught.value.message) == (status, reason, message)
    assert plain.ask(np.ones(3)).value.tolist() == [1, 1, 1]


def test_error_without_utf8(plain):
    """A message that is no UTF-8 is an ordinary error."""
    with pytest.raises(ModelFailed):
        plain.ask("fail_wrongly")


def test_unknown_method(plain):
    """A method that no hook can be is refused alike."""
    with pytest.raises(NotImplementedHere, match="there is no method 'nothing'"):
        plain.ask(np.ones(3), "nothing")


def test_tags_metrics_names(plain):
    """Tags, metrics and class names come with the answer."""
    answer = plain.ask(np.ones((1, 3)))
    assert answer.names == ["x", "y"]
    assert answer.metrics == [{"key": "rows", "type": "COUNTER", "value": 1}]
    assert answer.tags["t"] == 1
    assert str(answer.tags["when"]) == "2020-01-01"


def test_seldon_response(plain):
    """A SeldonResponse's own tags and metrics are there too, the metrics' tags stamped with the method."""
    answer = plain.ask(np.ones((1, 2)))
    assert answer.tags["of"] == "response"
    assert answer.metrics[-1] == {"key": "k", "type": "GAUGE", "value": 2.0, "tags": {"a": "b", "method": "predict"}}


def test_meta_is_seen(plain):
    """The model sees the request's meta."""
    answer = plain.ask("names_seen", meta={"puid": "p", "tags": {"a": 1}})
    assert answer.value == {"puid": "p", "tags": {"a": 1}}


@pytest.mark.parametrize("meta", [None, {"puid": "p", "tags": {"a": 1}}], ids=["none", "some"])
def test_meta_is_written(plain, meta):
    """What the model writes into meta is in the caller's request, and so in Seldon's answer."""
    request = payload("write", meta=meta and dict(meta))
    (answer,) = plain.answers(request)
    response = json.loads(b"".join(seldon.encode(answer, request, seldon.Context()).body))
    assert response["meta"]["tags"] == {**(meta or {}).get("tags", {}), "when": "2020-01-01", "n": 0.5, "t": 1}
    assert response["meta"].get("puid") == (meta or {}).get("puid")


def test_meta_that_cannot_be_written(plain):
    """A tag that JSON has no form for is a BadAnswer that names it."""
    request = payload("write_wrongly")
    with pytest.raises(BadAnswer, match="the answer holds a object, which JSON has no form for"):  # noqa: PT012
        (answer,) = plain.answers(request)
        seldon.encode(answer, request, seldon.Context())


def test_transforms_route_health(plain):
    """The other hooks answer."""
    assert plain.ask(np.ones(2), "transform_input").value.tolist() == [2, 2]
    assert plain.ask(np.ones(2), "transform_output").value.tolist() == [0, 0]
    assert plain.ask(np.ones(2), "route").value.tolist() == [[1]]
    assert plain.ask(np.ones(2), "health_status").value == {"well": True}


def test_aggregate(plain):
    """Many messages arrive as many."""
    parts = [Payload(Kind.TENSOR, np.array([1.0, 2.0]), names=["a"]), Payload(Kind.TENSOR, np.array([10.0, 20.0]))]
    assert plain.ask(parts, "aggregate", Kind.MANY).value.tolist() == [11, 22]


def test_feedback(plain):
    """A feedback arrives with its reward, truth and routing."""
    body = {
        "request": {"data": {"ndarray": [1, 2]}},
        "response": {"meta": {"routing": {"0": 4}}},
        "reward": 0.5,
        "truth": {"data": {"ndarray": [7]}},
    }
    request = seldon.decode(posted(body), "send_feedback")
    (answer,) = plain.answers(request)
    assert answer.value.tolist() == [0.5, 7, 3, 4]


@pytest.mark.parametrize("method", ["predict", "send_feedback", "aggregate"])
def test_raw(hosts, way, method):
    """The raw hooks get the message as it was sent, and their answer goes out as it is."""
    host = hosts.of(way, "Raw")
    message = {
        "predict": {"data": {"ndarray": [1, "a"]}, "meta": {"tags": {"x": 1}}, "other": [None]},
        "send_feedback": {"reward": 2.0},
        "aggregate": {"seldonMessages": [{"strData": "a"}, {"strData": "b"}]},
    }[method]
    wanted = {
        "predict": {"got": message, "status": {"code": 201}},
        "send_feedback": {"reward": 2.0},
        "aggregate": {"count": 1},
    }
    (answer,) = host.answers(seldon.decode(posted(message), method, raw=method in host.instance.spec.raw))
    assert (answer.kind, answer.value) == (Kind.RAW, wanted[method])


def test_raw_of_anything(hosts, way):
    """A message that is none of Seldon's reaches the raw hook too."""
    host = hosts.of(way, "Raw")
    request = seldon.decode(posted(["x", 1]), "predict", raw=True)
    (answer,) = host.answers(request)
    assert answer.value["got"] == ["x", 1]


def test_raw_only(hosts, way):
    """A class with nothing but a raw hook refuses what is no message of Seldon's."""
    with pytest.raises(NotImplementedHere, match="the model has only predict_raw"):
        hosts.of(way, "Raw").ask(np.ones(2))


def test_typed(hosts, way):
    """Inputs by name are checked and converted, whatever is missing has its default."""
    host = hosts.of(way, "Typed")
    words = np.array([b"a", "grüße".encode()], object)
    answer = host.ask({"x": np.ones((1, 2), np.float32), "words": words})
    assert answer.value["y"].dtype == np.float32
    assert answer.value["y"].tolist() == [[2, 2]]
    assert answer.value["words"].tolist() == [b"a", "grüße".encode()]
    assert [tensor.name for tensor in host.instance.spec.inputs] == ["x", "factor", "words"]
    with pytest.raises(BadRequest, match="missing input 'x'"):
        host.ask({"factor": np.ones(1)})


def test_asynchronous(hosts, way):
    """An async model answers and raises."""
    host = hosts.of(way, "Asynchronous")
    assert host.ask(np.array([1, 2])).value.tolist() == [2, 4]
    with pytest.raises(ModelFailed, match="minus one"):
        host.ask(np.array([-1]))
    with pytest.raises(ModelFailed, match="given up"):
        host.ask(np.array([-3]))
    with pytest.raises(ModelFailed, match="minus four"):
        host.ask(np.array([-4]))


@pytest.mark.parametrize("where", ["worker", "loop"])
def test_asynchronous_cancellation(hosts, where):
    """An async predict gets CancelledError when nobody waits for its answer any more."""
    host = hosts.of(where, "Asynchronous")

    async def hang_up():
        before = await one("counts")
        task = asyncio.ensure_future(one(np.array([-2])))
        while (await one("counts"))["waiting"] == before["waiting"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        task.cancel()
        while (await one("counts"))["cancelled"] == before["cancelled"]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def one(value):
        async with aclosing(host.instance.infer_async(payload(value))) as answers:
            return [answer async for answer in answers][0].value  # noqa: RUF015

    asyncio.run(asyncio.wait_for(hang_up(), 30))


def test_cancelled(hosts):
    """meta["cancelled"]() turns true in the model once its client has gone."""
    host = hosts.of("process", "Plain")
    other = payload("cancelled", deadline=time.monotonic() + 0.1)
    with pytest.raises(PreforkError) as caught:
        host.answers(other)
    assert caught.value.status == 504
    wait_until(lambda: host.ask("was_cancelled").value["seen"], "the model to see it")


@pytest.mark.parametrize("class_", ["Generator", "AsyncGenerator"])
def test_generators(hosts, way, class_):
    """A generator's parts come one by one, an error behind them is raised behind them."""
    host = hosts.of(way, class_)
    assert [part.value.tolist() for part in host.answers(payload(np.array([2])))] == [[0], [1]]
    assert host.answers(payload(np.array([0]))) == []
    seen = []
    with pytest.raises(ModelFailed, match="after three"):
        host.until(payload(np.array([3])), lambda part: seen.append(part.value.tolist()) or True)
    assert seen == [[0], [1], [2]]
    with pytest.raises(ModelFailed, match="after four"):
        host.answers(payload(np.array([4])))


@pytest.mark.parametrize("class_", ["Generator", "AsyncGenerator"])
def test_generators_are_left(hosts, way, class_):
    """Who has enough of a stream leaves it, and the model answers the next one."""
    host = hosts.of(way, class_)
    assert len(host.until(payload(np.array([10**6])), lambda _part: False)) == 1
    assert len(host.answers(payload(np.array([1])))) == 1


def test_parts_of_no_stream(hosts, way):
    """A predict that only returns an iterator, without saying so, answers in parts as well."""
    assert [part.value.tolist() for part in hosts.of(way, "Plain").answers(payload("parts"))] == [[1], [2]]


@pytest.mark.parametrize(
    ("what", "parts", "error"),
    [
        ("two", [{"n": [0, 1]}, {"n": [2]}], ""),
        ("later", [{"n": [1]}], ""),
        ("fail", [{"n": [1]}], "after one"),
        ("panic", [{"n": [1]}], "after one, too"),
        ("let_go", [{"n": [1]}], "the model let go of its sender without close()"),
    ],
)
def test_senders(hosts, way, what, parts, error):
    """What is sent arrives, and the end, or the error, behind it."""
    seen = []

    def note(part):
        seen.append({name: np.atleast_1d(array).tolist() for name, array in part.value.items()})
        return True

    host = hosts.of(way, "Speaker")
    request = payload({"text": np.array([what.encode()], object)})
    if error:
        with pytest.raises(ModelFailed, match=error.replace("(", ".").replace(")", ".")):
            host.until(request, note)
    else:
        host.until(request, note)
    assert seen == parts


@pytest.mark.parametrize("where", ["process", "loop"])
def test_part_is_a_copy(hosts, where):
    """A part may be changed once it was sent."""
    (part,) = hosts.of(where, "Speaker").answers(payload({"text": np.array([b"changed"], object)}))
    assert part.value["n"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("where", ["process", "loop"])
def test_unsendable(hosts, where):
    """A part that has no form raises where it is sent, and ends the request with that."""
    host = hosts.of(where, "Speaker")
    with pytest.raises(BadAnswer, match="a set"):
        host.answers(payload({"text": np.array([b"unsendable"], object)}))
    (answer,) = host.answers(payload({"text": np.array([b"told"], object)}))
    assert b"a set" in answer.value["said"][0]


def test_asynchronous_sender(hosts, way):
    """An async predict may send."""
    host = hosts.of(way, "AsyncSpeaker")
    parts = host.answers(payload({"text": np.array([b"a b c"], object)}))
    assert [part.value["word"].tolist() for part in parts] == [[b"a"], [b"b"], [b"c"]]


def test_sender_occupies_nothing(hosts):
    """One engine thread answers many requests at once: a request that is not closed holds up nobody."""
    host = hosts.of("process", "Speaker")
    kept = threading.Thread(target=host.answers, args=(payload({"text": np.array([b"keep"], object)}),))
    kept.start()
    for _ in range(3):
        assert len(host.answers(payload({"text": np.array([b"two"], object)}))) == 2
    while kept.is_alive():  # it may not have been kept yet
        assert host.answers(payload({"text": np.array([b"close_kept"], object)})) == []
        kept.join(0.02)


def test_reschedule(hosts, way):
    """A request that is handed back once is asked again, with its state; twice is an error."""
    host = hosts.of(way, "Twice")
    assert host.ask({"text": np.array([b"a b"], object)}).value["tokens"].tolist() == [b"a", b"b"]
    with pytest.raises(ModelFailed, match="Reschedule twice"):
        host.ask({"text": np.array([b"again and again"], object)})


@pytest.mark.parametrize("size", [10, 100_000], ids=["small", "large"])
def test_kept_inputs(hosts, way, size):
    """An input that the model keeps stays what it was, whatever is asked afterwards."""
    host = hosts.of(way, "Keeper")
    before = host.ask(np.array([-2.0])).value[0]
    kept = np.ones(size)
    kept[0] = -1
    for _ in range(3):
        assert np.array_equal(host.ask(kept).value, kept)
        other = np.full(size, 7.0)
        assert np.array_equal(host.ask(other).value, other)
    assert host.ask(np.array([-2.0])).value[0] == before + 3 * kept.sum()


def test_answers_are_the_callers(hosts, way):
    """An answer can be written to, and stays what it is when others come."""
    host = hosts.of(way, "Plain")
    answers = [host.ask(np.full(100_000, float(number))) for number in range(3)]
    answers[0].value[0] = 5
    assert [answer.value[1] for answer in answers] == [0, 1, 2]


def test_unknown_socket():
    """A model whose processes are gone is unavailable, and a name that nobody knows is what the address says it is."""
    from prefork.payload import ModelSpec
    from prefork.remote import Card, RemoteInstance

    card = Card(spec=ModelSpec("m"), described=ModelSpec("m"))
    with pytest.raises(Unavailable, match="is not there"):
        list(RemoteInstance(lambda _: "/nowhere/s.sock", card).infer(payload("x")))

    def address(_level):
        raise NotFound("who?")

    instance = RemoteInstance(address, card)
    assert not instance.ready()
    with pytest.raises(NotFound):
        list(instance.infer(payload("x")))


def test_nothing_is_held_after_an_answer(hosts, way):
    """A request's arrays go when it has been answered, though its Payload is still there."""
    host = hosts.of(way, "Plain")
    array = np.ones(100_000)
    gone = weakref.ref(array)
    request = payload(array)
    host.answers(request)
    del array, request
    assert gone() is None

"""Answers through a sender, and requests that are handed back: over both fronts, and on a real server."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import prefork
from prefork import Reschedule, Rescheduled, Sender, SenderClosed
from prefork.compat.user_model import SeldonResponse
from prefork.errors import BadAnswer, BadRequest, ModelFailed, ModelLoadError, NotImplementedHere, Unavailable
from prefork.http import Response
from prefork.instance import LocalInstance
from prefork.later import Again
from prefork.model import Model
from prefork.model.outbox import AHEAD, MOST
from prefork.payload import Kind, Payload
from prefork.protocols import sse
from prefork.testing import Client
from prefork.threads import Job, ModelThreads
from running import wait_until

WAYS = (("asgi", 1), ("asgi", 0), ("wsgi", 1))
DEADLINE = 30


@pytest.fixture(params=WAYS, ids=["asgi", "inline", "wsgi"])
def way(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The fronts, and where the model runs in them."""
    front, threads = request.param
    return {"front": front, "threads": threads, "name": "m"}


def stream(client: Client, headers: dict[str, str] | None = None, **inputs: Any) -> Any:
    return client.post("/v2/models/m/generate_stream", json=inputs, headers=headers)


def words(response: Any) -> list[Any]:
    """What the events of a stream say: their word, or their error."""
    bodies = [sse_json(event) for event in sse.events([response.content])]
    return [body.get("word", body.get("error")) for body in bodies]


def sse_json(event: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(event)
    return found


def in_thread(work: Any) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


class Talk:
    """Does as it is told: what happens to the sender, and when."""

    def __init__(self) -> None:
        self.kept: list[Sender] = []
        self.seen: list[Any] = []

    def predict(self, do: str, sender: Sender) -> Any:
        return getattr(self, f"do_{do}")(sender)

    def do_during(self, sender: Sender) -> None:
        for word in "abc":
            assert sender.send({"word": word})
        sender.close()

    def do_final(self, sender: Sender) -> None:
        sender.send({"word": "a"})
        sender.send({"word": "b"}, final=True)

    def do_after(self, sender: Sender) -> None:
        go = threading.Event()
        in_thread(lambda: go.wait(DEADLINE) and self.do_during(sender))
        self.later = go.set

    def do_many(self, sender: Sender) -> None:
        for number in range(10 * AHEAD):
            sender.send({"word": number})
        sender.close()

    def do_empty(self, sender: Sender) -> None:
        sender.close()

    def do_one(self, sender: Sender) -> None:
        sender.send({"word": "only"})
        sender.close()

    def do_keep(self, sender: Sender) -> None:
        self.kept.append(sender)
        sender.send({"word": "a"})

    def do_keep_silent(self, sender: Sender) -> None:
        self.kept.append(sender)

    def do_keep_closed(self, sender: Sender) -> None:
        self.kept.append(sender)
        self.do_final(sender)

    def do_lose(self, sender: Sender) -> None:
        sender.send({"word": "a"})

    def do_lose_silent(self, sender: Sender) -> None:
        pass

    def do_thread_dies(self, sender: Sender) -> None:
        go = threading.Event()
        in_thread(lambda: go.wait(DEADLINE) and sender.send({"word": "a"}) and None)
        go.set()

    def do_raise(self, sender: Sender) -> None:
        self.kept.append(sender)
        raise KeyError("no such word")

    def do_raise_late(self, sender: Sender) -> None:
        self.kept.append(sender)
        sender.send({"word": "a"})
        raise KeyError("no such word")

    def do_raise_after(self, sender: Sender) -> None:
        self.do_final(sender)
        raise KeyError("after the end")

    def do_fail(self, sender: Sender) -> None:
        self.kept.append(sender)
        in_thread(lambda: sender.close(BadRequest("not that")))

    def do_return(self, sender: Sender) -> Any:
        return {"word": "a"}

    def do_again(self, sender: Sender) -> None:
        self.do_final(sender)
        for late in (lambda: sender.send({"word": "c"}), lambda: sender.send({"word": "c"}, final=True)):
            try:
                late()
            except SenderClosed as error:
                self.seen.append(error)
        sender.close()

    def do_bad_part(self, sender: Sender) -> None:
        sender.send({"word": "a"})
        try:
            sender.send(object())
        except BadAnswer as error:
            self.seen.append(error)
        self.seen.append(sender.send({"word": "b"}))

    def do_reuse(self, sender: Sender) -> None:
        part = {"word": ""}
        for word in "abc":
            part["word"] = word
            sender.send(part)
        part["word"] = "changed"
        sender.close()

    def do_exit(self, sender: Sender) -> None:
        raise SystemExit(3)


class TalkLater(Talk):
    """As Talk, from `async def`."""

    async def predict(self, do: str, sender: Sender) -> Any:
        await asyncio.sleep(0)
        if do == "many":
            for number in range(10 * AHEAD):
                await sender.asend({"word": number})
            await asyncio.sleep(0)
            return sender.close()
        return getattr(self, f"do_{do}")(sender)


KINDS = pytest.mark.parametrize("kind", [Talk, TalkLater])

SAID = {
    "during": ["a", "b", "c"],
    "final": ["a", "b"],
    "many": list(range(10 * AHEAD)),
    "empty": [],
    "keep_closed": ["a", "b"],
    "lose": ["a", "the model let go of its sender without close()"],
    "thread_dies": ["a", "the model let go of its sender without close()"],
    "raise_late": ["a", "'no such word'"],
    "raise_after": ["a", "b"],
    "again": ["a", "b"],
    "reuse": ["a", "b", "c"],
}


@KINDS
@pytest.mark.parametrize("do", SAID)
def test_what_is_sent_is_what_arrives(way, kind, do):
    """Each part is an event, in its order; what goes wrong after the first is the last event; the model goes on."""
    with Client(kind, **way) as client:
        for _ in range(2):
            response = stream(client, do=do)
            assert (response.status_code, words(response)) == (200, SAID[do])


FAILED = {
    "lose_silent": (500, "the model let go of its sender without close()"),
    "raise": (500, "'no such word'"),
    "fail": (400, "not that"),
    "return": (500, "predict has a sender and must return None, not a dict"),
    "exit": (500, "the model called sys.exit(3), which ends nothing here"),
}


@KINDS
@pytest.mark.parametrize("do", FAILED)
def test_an_end_before_the_first_part_has_a_status(way, kind, do):
    """What goes wrong before the first part is an ordinary error answer."""
    with Client(kind, **way) as client:
        for _ in range(2):
            response = stream(client, do=do)
            assert (response.status_code, response.json()) == (FAILED[do][0], {"error": FAILED[do][1]})


@KINDS
def test_parts_may_come_when_predict_has_returned(way, kind):
    """Another thread sends, and ends the request, long after `predict` has returned."""
    talk = kind()
    with Client(talk, **way) as client, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(stream, client, do="after")
        wait_until(lambda: hasattr(talk, "later"), "predict to return")
        talk.later()
        assert words(asked.result(DEADLINE)) == ["a", "b", "c"]


@KINDS
def test_a_send_after_the_last_part_raises(way, kind):
    """SenderClosed, a RuntimeError, in the model; a second close() does nothing; the client sees one answer."""
    talk = kind()
    with Client(talk, **way) as client:
        assert words(stream(client, do="again")) == ["a", "b"]
    assert [type(each) for each in talk.seen] == [SenderClosed, SenderClosed]
    assert issubclass(prefork.SenderClosed, RuntimeError)


@KINDS
def test_a_part_that_cannot_be_encoded_ends_the_request(way, kind):
    """BadAnswer where it is sent, and for the client; the sends behind it are dropped."""
    talk = kind()
    with Client(talk, **way) as client:
        assert words(stream(client, do="bad_part")) == ["a", str(talk.seen[0])]
    assert "object" in str(talk.seen[0])
    assert talk.seen[1] is False


@KINDS
def test_generate_takes_exactly_one_part(way, kind):
    """/generate answers the one part; none or several are errors, and paths that carry no stream a 501."""
    with Client(kind, **way) as client:
        assert client.post("/v2/models/m/generate", json={"do": "one"}).json()["word"] == "only"
        for do in ("empty", "during"):
            response = client.post("/v2/models/m/generate", json={"do": do})
            assert response.status_code == 500
            assert "generate_stream" in response.json()["error"]
        assert client.post("/predict", json={"jsonData": {"do": "one"}}).status_code == 501


@KINDS
@pytest.mark.parametrize("do", ["keep", "keep_silent", "keep_closed"])
def test_a_kept_sender_never_blocks_an_unload(front, kind, do):
    """Unloading ends what was not closed with a 503 for the client, whoever holds the sender, and sees to it at once."""
    talk = kind()
    with ThreadPoolExecutor(1) as pool:
        instance = local(talk)
        asked = pool.submit(list, instance.infer(ask(do)))
        wait_until(lambda: talk.kept, "the sender to be kept")
        if do == "keep_closed":
            assert len(asked.result(DEADLINE)) == 2
        instance.close()
        if do != "keep_closed":
            with pytest.raises(Unavailable, match="unloaded"):
                asked.result(DEADLINE)
            assert talk.kept[0].cancelled()
            assert talk.kept[0].send({"word": "b"}) is False


@pytest.mark.parametrize("kind", [Talk, TalkLater])
@pytest.mark.parametrize("path", ["generate", "generate_stream"])
def test_unloading_answers_who_waits(kind, path):
    """A client whose answer was not closed gets the error when the model is unloaded under it."""
    talk = kind()
    with Client(talk, name="m") as client, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.post, f"/v2/models/m/{path}", json={"do": "keep_silent"})
        wait_until(lambda: talk.kept, "the sender to be kept")
        client.front.close()
        response = asked.result(DEADLINE)
        assert (response.status_code, response.json()) == (503, {"error": "the model is being unloaded"})


@KINDS
@pytest.mark.parametrize("do", ["keep", "keep_silent"])
def test_the_deadline_ends_a_kept_sender(way, kind, do):
    """When the time is up the client is told so, and the model is: `cancelled()`, and sends are dropped."""
    talk = kind()
    with Client(talk, **way) as client:
        response = stream(client, {"x-request-timeout": "0.3"}, do=do)
        if do == "keep":
            assert words(response)[0] == "a"
            assert len(words(response)) == 2
        else:
            assert response.status_code == 504
        wait_until(talk.kept[0].cancelled, "the model to see it")
        assert talk.kept[0].send({"word": "b"}) is False


def test_a_closed_sender_holds_nothing_of_the_request(way):
    """After the last part the request's arrays are free, whoever keeps the sender."""
    inputs: list[weakref.ref[Any]] = []
    senders = []

    class Keeps:
        def predict(self, x: np.ndarray, sender: Sender) -> None:
            inputs.append(weakref.ref(x))
            senders.append(sender)
            sender.send(x, final=True)

    with Client(Keeps, **way) as client:
        assert stream(client, x=[1.0, 2.0]).status_code == 200
        for _ in range(3):  # the request before is held by nobody once the next one is there
            assert stream(client, x=[1.0]).status_code == 200

    def is_free() -> bool:
        gc.collect()
        return inputs[0]() is None

    wait_until(is_free, "the first request to be let go of", 10)
    assert len(senders) == 4


def test_several_threads_may_send(way):
    """The order of the parts is that of the sends, and none is lost."""

    class Many:
        def predict(self, count: int, sender: Sender) -> None:
            left = [count] * 4
            lock = threading.Lock()

            def work(number: int) -> None:
                for at in range(count):
                    sender.send({"word": [number, at]})
                with lock:
                    left.pop()
                    is_last = not left
                if is_last:
                    sender.close()

            for number in range(4):
                in_thread(lambda number=number: work(number))

    with Client(Many, **way) as client:
        got = words(stream(client, count=50))
        assert len(got) == 200
        for number in range(4):
            assert [at for who, at in got if who == number] == list(range(50))


class Engine:
    """Answers eight requests at once, a part of each at a time, on one thread, when all eight are there."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, Sender]] = []

    def load(self) -> None:
        self.more = threading.Condition()
        in_thread(self.run)

    def predict(self, number: int, sender: Sender) -> None:
        with self.more:
            self.waiting.append((number, sender))
            self.more.notify()

    def run(self) -> None:
        with self.more:
            self.more.wait_for(lambda: len(self.waiting) == 8, DEADLINE)
            batch, self.waiting = self.waiting, []
        for turn in range(40):
            for number, sender in batch:
                sender.send({"word": number * 100 + turn})
        for _, sender in batch:
            sender.close()


class EngineLater(Engine):
    async def predict(self, number: int, sender: Sender) -> None:
        super().predict(number, sender)


@pytest.mark.parametrize("kind", [Engine, EngineLater])
def test_one_model_thread_has_many_requests_under_way(kind):
    """`predict` returns with the sender open, and its thread takes the next request: continuous batching."""
    with Client(kind, name="m", threads=1) as client, ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(stream, client, number=number) for number in range(8)]
        got = [words(each.result(DEADLINE)) for each in asked]
    assert got == [[number * 100 + turn for turn in range(40)] for number in range(8)]


def test_seldons_style_has_a_parameter_called_sender(way):
    """Beside X and names, by name, before or after meta."""

    class Plain:
        def predict(self, X, names, sender, meta=None):
            sender.send({"word": list(names)})
            sender.send({"word": type(meta).__name__})
            sender.send({"word": X.tolist()}, final=True)

    with Client(Plain, **way) as client:
        assert words(stream(client, INPUT=[[1, 2]])) == [[], "NoMeta", [1, 2]]


def test_meta_has_the_sender_too(way):
    """A `predict` that says `meta["sender"]` answers through it; it is kept by who keeps the sender, not the meta."""
    metas = []

    class ByMeta:
        def predict(self, X, names, meta):
            metas.append(meta)
            meta["sender"].send({"word": "a"})
            if X.any():
                meta["sender"].close()

    with Client(ByMeta, **way) as client:
        assert words(stream(client, INPUT=[1])) == ["a"]
        assert words(stream(client, INPUT=[0])) == ["a", "the model let go of its sender without close()"]
    with pytest.raises(KeyError):
        metas[0]["sender"]


def test_the_word_sender_alone_makes_no_stream(front):
    """A class that reads `sender` out of its data, or writes it into `meta`, is an ordinary one."""

    class Mails:
        def predict(self, X, names, meta):
            meta["sender"] = "me"
            return {"from": X["sender"], "by": meta.get("sender")}

    with Client(Mails, front=front) as client:
        answer = client.post("/predict", json={"jsonData": {"sender": "you"}})
        assert answer.json()["jsonData"] == {"from": "you", "by": "me"}


def test_parts_may_be_seldon_responses(way):
    """A part's own metrics are counted, as those of a part that is yielded."""

    class Counts:
        def predict(self, X, names, sender):
            for _ in range(3):
                sender.send(SeldonResponse(X, metrics=[{"key": "parts", "type": "COUNTER", "value": 2}]))
            sender.close()

    with Client(Counts, **way) as client:
        assert len(words(stream(client, INPUT=[1]))) == 3
        assert "parts_total{" in client.get("/metrics").text
        line = next(line for line in client.get("/metrics").text.splitlines() if line.startswith("parts_total{"))
        assert float(line.rpartition(" ")[2]) == 6


def test_a_predict_answers_in_one_way():
    """A generator with a sender is refused when the model is built."""

    class Both:
        def predict(self, text: str, sender: Sender) -> Iterator[str]:
            yield text

    with pytest.raises(ModelLoadError, match="in one way"):
        Model(Both(), "m")


# --- the way of the parts ------------------------------------------------------------------------------------------


def local(user_object: object) -> LocalInstance:
    return LocalInstance(Model(user_object, "m"))


def ask(do: str) -> Payload:
    return Payload(Kind.JSON, {"do": do})


class Lends:
    """Lends its sender to the test."""

    def __init__(self) -> None:
        self.senders: list[Sender] = []

    def predict(self, X, sender):
        self.senders.append(sender)


def opened() -> tuple[Any, Sender]:
    """A conversation, and its sender, which the test alone holds."""
    lends = Lends()
    conversation = local(lends).open(Payload(Kind.TEXT, "x"))
    assert conversation.ask() is False
    return conversation, lends.senders.pop()


def test_a_sender_waits_for_its_reader():
    """No more than AHEAD parts wait for the reader; each one read lets one more come."""
    conversation, sender = opened()
    sent: list[int] = []

    def work() -> None:
        for number in range(3 * AHEAD):
            sender.send(str(number))
            sent.append(number)
        sender.close()

    in_thread(work)
    wait_until(lambda: len(sent) == AHEAD, "the sender to be held back")
    got = []
    for part in conversation.outbox:
        got.append(int(part.value))
        assert len(sent) <= len(got) + AHEAD
    assert got == list(range(3 * AHEAD))


@pytest.mark.parametrize("how", ["leave", "end"])
def test_a_sender_that_waits_is_let_go(how):
    """When the reader leaves, or the model is unloaded, a send that waits returns False."""
    conversation, sender = opened()
    for number in range(AHEAD):
        assert sender.send(str(number))
    took: list[bool] = []
    thread = in_thread(lambda: took.append(sender.send("one more")))
    getattr(conversation.outbox, how)()
    thread.join(DEADLINE)
    assert took == [False]
    assert sender.cancelled()


@pytest.mark.parametrize("on_loop", [False, True])
def test_a_sender_that_cannot_wait_is_bounded_all_the_same(on_loop):
    """With wait=False, or on an event loop, nobody waits; the request ends when its reader is MOST parts behind."""
    conversation, sender = opened()

    async def work() -> list[bool]:
        return [sender.send(str(number)) for number in range(MOST + 2)]

    took = asyncio.run(work()) if on_loop else [sender.send(str(n), wait=False) for n in range(MOST + 2)]
    assert took == [True] * MOST + [False] * 2
    for number in range(MOST):
        assert next(conversation.outbox).value == str(number)
    with pytest.raises(ModelFailed, match="behind"):
        next(conversation.outbox)


def test_asend_waits_on_the_loop():
    """`asend` holds its task back while the reader is AHEAD behind, and the loop goes on."""
    conversation, sender = opened()
    sent: list[int] = []

    async def work() -> None:
        for number in range(3 * AHEAD):
            await sender.asend(str(number))
            sent.append(number)
        sender.close()

    async def main() -> list[int]:
        task = asyncio.ensure_future(work())
        for _ in range(100):  # turns of the loop
            await asyncio.sleep(0)
        assert len(sent) == AHEAD
        got = [int(part.value) async for part in conversation.outbox]
        await task
        return got

    assert asyncio.run(asyncio.wait_for(main(), DEADLINE)) == list(range(3 * AHEAD))


def test_a_sender_in_a_cycle_is_found_by_the_collector():
    """A sender that only a cycle of the user's objects holds ends its request when that is collected."""
    conversation, sender = opened()
    cycle: list[Any] = [sender]
    cycle.append(cycle)
    del sender, cycle
    gc.collect()
    with pytest.raises(ModelFailed, match="let go"):
        next(conversation.outbox)


def test_a_reader_that_left_before_is_never_computed():
    """`predict` is not called for a request that nobody waits for any more."""
    lends = Lends()
    gone = Payload(Kind.TEXT, "x", cancelled=lambda: True)
    assert local(lends).open(gone).ask() is False
    assert lends.senders == []


def test_where_nobody_can_take_parts_the_model_is_not_asked():
    """Asked for one answer by itself, a model with a sender says which path to ask."""
    with pytest.raises(NotImplementedHere, match="generate_stream"):
        Model(Lends(), "m").answer(Payload(Kind.TEXT, "x"))


# --- handing back --------------------------------------------------------------------------------------------------


class Twice:
    """Hands a request back as often as it says."""

    def predict(self, X, names, state=None):
        count = state or 0
        if count < X[0][0]:
            raise Reschedule(count + 1)
        return [[count]]


class TwiceLater:
    async def predict(self, X, names, state=None):
        return Twice().predict(X, names, state)


class TwiceTyped:
    def predict(self, times: int, before: Rescheduled[int]) -> dict[str, int]:
        return {"word": int(Twice().predict([[times]], [], before)[0][0])}


class TwiceParts:
    def predict(self, times: int, before: Rescheduled[int]) -> Iterator[dict[str, int]]:
        yield TwiceTyped().predict(times, before)


class TwiceSends:
    def predict(self, times: int, before: Rescheduled[int], sender: Sender) -> None:
        sender.send({"word": "begun"})
        sender.send(TwiceTyped().predict(times, before), final=True)


class TwiceSendsLater:
    async def predict(self, times: int, before: Rescheduled[int], sender: Sender) -> None:
        await sender.asend({"word": "begun"})
        sender.send(TwiceTyped().predict(times, before), final=True)


@pytest.mark.parametrize("kind", [Twice, TwiceLater])
def test_a_request_is_handed_back_with_its_state(way, kind):
    """`predict` is called once more, and given what it left; a second time is a 500."""
    with Client(kind, **way) as client:
        for times in (0, 1):
            answer = client.post("/predict", json={"data": {"ndarray": [[times]]}})
            assert answer.json()["data"]["ndarray"] == [[times]]
        answer = client.post("/predict", json={"data": {"ndarray": [[2]]}})
        assert answer.status_code == 500
        assert "twice" in answer.json()["status"]["info"]


@pytest.mark.parametrize("kind", [TwiceTyped, TwiceParts, TwiceSends, TwiceSendsLater])
def test_a_stream_is_handed_back_too(way, kind):
    """Before the first part of a generator; with a sender also after some, and the answer goes on."""
    begun = ["begun"] if "Sends" in kind.__name__ else []
    with Client(kind, **way) as client:
        assert words(stream(client, times=0)) == [*begun, 0]
        assert words(stream(client, times=1)) == [*begun, *begun, 1]
        failed = stream(client, times=2)
        assert "twice" in failed.text
        assert failed.status_code == (200 if begun else 500)


class InTurn:
    """Writes down in which order it is asked; the first request goes on once the second one waits."""

    def __init__(self) -> None:
        self.order: list[int] = []
        self.go = threading.Event()

    def predict(self, number: int, state: Rescheduled[str]) -> dict[str, str]:
        self.order.append(number)
        if number == 1 and state is None:
            self.go.wait(DEADLINE)
            raise Reschedule("again")
        return {"word": state or ""}


class InTurnSends(InTurn):
    def predict(self, number: int, state: Rescheduled[str], sender: Sender) -> None:
        sender.send(super().predict(number, state), final=True)


@pytest.mark.parametrize("kind", [InTurn, InTurnSends])
def test_what_is_handed_back_goes_behind_those_who_wait(kind):
    """With one model thread, the other request is answered before the first one has its second turn."""
    turns = kind()
    with Client(turns, name="m", threads=1) as client, ThreadPoolExecutor(2) as pool:
        first = pool.submit(stream, client, number=1)
        wait_until(lambda: turns.order, "the first request")
        second = pool.submit(stream, client, number=2)
        wait_until(lambda: client.front.app._threads.waiting == 1, "the second to wait")
        turns.go.set()
        assert words(first.result(DEADLINE)) == ["again"]
        assert words(second.result(DEADLINE)) == [""]
    assert turns.order == [1, 2, 1]


def test_state_is_free_when_the_request_is_over(front):
    """What a model leaves for its second turn does not outlive the request."""
    left: list[weakref.ref[Any]] = []

    class State:
        pass

    class Leaves:
        def predict(self, X, names, state=None):
            if state is None:
                state = State()
                left.append(weakref.ref(state))
                raise Reschedule(state)
            return X

    with Client(Leaves, front=front) as client:
        for _ in range(4):
            assert client.post("/predict", json={"data": {"ndarray": [[1]]}}).status_code == 200

    def is_free() -> bool:
        gc.collect()
        return left[0]() is None

    wait_until(is_free, "the state to be let go of", 10)


@pytest.mark.parametrize("when", ["while it runs", "while it waits"])
def test_a_request_that_is_given_up_has_no_second_turn(when):
    """Handed back, and nobody waits for it: it is not run again, and its place in the queue is free."""
    ran: list[str] = []
    go = threading.Event()

    def again() -> Response:
        ran.append("again")
        return Response()

    def first() -> Response:
        ran.append("first")
        assert go.wait(DEADLINE)
        return Again(again)

    def between() -> Response:
        ran.append("between")
        if when == "while it waits":
            loop.call_soon_threadsafe(threads.abandon, job)
            wait_until(lambda: job.is_abandoned, "the client to go")
        return Response()

    threads, job = ModelThreads(1), Job(first)

    async def main() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        answers = [threads.run(job), threads.run(Job(between))]
        if when == "while it runs":
            await asyncio.to_thread(wait_until, lambda: ran, "the first turn")
            threads.abandon(job)
        go.set()
        assert await answers[0] is None
        await answers[1]
        await threads.run(Job(Response))
        assert threads.waiting == -1
        threads.close()

    loop: Any = None
    asyncio.run(asyncio.wait_for(main(), DEADLINE))
    assert ran == ["first", "between"]
    assert job.was_begun

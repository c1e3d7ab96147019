"""The batch loop: takes requests, decides, asks the model once for many, and answers each.

A request is answered exactly once. What is cancelled, or late, when a batch begins is not executed. When a merged call
fails, each of its requests is tried alone, once, if the policy says so (`retry_alone`) or if the error is a refusal of
the request (a status below 500), which cannot be everybody's; else it is everybody's error. A request that the model hands
back (Reschedule) is asked again, alone, behind those that wait; a merged one that it hands back is taken apart.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from prefork.batch.ask import Ask, Terms, expired
from prefork.batch.intake import Intake
from prefork.batch.merge import split
from prefork.batch.plan import decide, limit
from prefork.batch.sweep import Sweep
from prefork.errors import BadAnswer, PreforkError
from prefork.failure import Passing
from prefork.instance import Instance, gives_more
from prefork.model.reschedule import Reschedule
from prefork.payload import Cost, Payload
from prefork.repository.config import Batching

log = logging.getLogger("prefork")


def run(intake: Intake, inner: Instance, policy: Batching) -> None:
    """Serve the requests of an intake on this thread, until that is closed and nothing waits."""
    batcher = Batcher(intake, inner, policy)
    batcher.run()
    batcher.close()


class Batcher:
    """Serves the requests of an intake with as many threads as call `run`; one of them forms a batch at any time.

    busy: told of each change how many threads are with the model. clock: of seconds.
    """

    def __init__(
        self,
        intake: Intake,
        inner: Instance,
        policy: Batching,
        *,
        busy: Callable[[int], None] = lambda _count: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._intake = intake
        self._inner = inner
        self._policy = policy
        self._merge = Terms(policy, inner.spec).merge
        self._limit = limit(policy)
        self._clock = clock
        self._busy = busy
        self._busy_count = 0
        self._turn = threading.Lock()
        self._counting = threading.Lock()
        self._held: list[Ask] = []
        self._again: deque[Ask] = deque()
        self._sweep = Sweep()

    def run(self) -> None:
        """Until the intake is closed and nothing waits."""
        while (batch := self._next()) is not None:
            try:
                self._execute(batch)
            except Exception:
                log.exception("a batch was not answered")  # the thread has to go on for the others
            finally:
                self._count(-1)

    def close(self) -> None:
        """Once all threads have come back from `run`."""
        self._sweep.close()

    # --- forming a batch ---

    def _next(self) -> list[Ask] | None:
        """The next batch, claimed; None for the end."""
        if not self._turn.acquire(blocking=False):
            # Who has the turn may wait for ever, and would not see what was handed back meanwhile.
            batch = [ask for ask in self._handed_back() if self._begins(ask)]
            if batch:
                self._count(1)
                return batch
            self._turn.acquire()
        try:
            return self._formed()
        finally:
            self._turn.release()

    def _formed(self) -> list[Ask] | None:
        while True:
            is_full = self._fill()
            decision = decide(self._held, self._policy, self._clock(), full=is_full)
            for ask in decision.late:
                ask.refuse(expired())
            self._hold(decision.batch, decision.late)
            batch = [ask for ask in decision.batch if self._begins(ask)]
            if batch:
                self._count(1)
                self._sweep.watch(self._held)
                return batch
            if not (decision.batch or self._wait(decision.look)):
                return None

    def _fill(self) -> bool:
        """Take what is there and what one batch can hold; whether nothing more is to be waited for."""
        self._held = [ask for ask in self._held if not ask.is_claimed]
        rows = sum(ask.rows for ask in self._held)
        while rows < self._limit:
            ask = self._intake.take(0.0)
            if ask is None:
                break
            self._held.append(ask)
            rows += ask.rows
        self._held.extend(self._handed_back())
        return rows >= self._limit or self._intake.is_closed

    def _handed_back(self) -> Iterator[Ask]:
        while True:
            try:
                yield self._again.popleft()
            except IndexError:
                return

    def _hold(self, *gone: Sequence[Ask]) -> None:
        out = {id(ask) for asks in gone for ask in asks}
        self._held = [ask for ask in self._held if id(ask) not in out]

    def _begins(self, ask: Ask) -> bool:
        if not ask.claim():
            return False
        if ask.reply.is_cancelled():
            ask.reply.fail(expired())  # its client has gone, or waits for nothing but to be told that the time is up
            return False
        return True

    def _wait(self, until: float) -> bool:
        """Wait for one more request until then; false for the end."""
        ask = self._intake.take(until)
        if ask is not None:
            self._held.append(ask)
        return ask is not None or bool(self._held) or not self._intake.is_closed

    def _count(self, change: int) -> None:
        with self._counting:
            self._busy_count += change
            self._busy(self._busy_count)

    # --- executing it ---

    def _execute(self, batch: list[Ask]) -> None:
        if len(batch) == 1:
            self._alone(batch[0])
            return
        begun = self._clock()
        try:
            answers = self._together(batch, begun)
        except Reschedule:
            self._each_alone(batch)
            return
        except PreforkError as error:
            self._failed(batch, error)
            return
        for ask, answer in zip(batch, answers, strict=True):
            ask.reply.answer(answer, last=True)

    def _together(self, batch: list[Ask], begun: float) -> list[Payload]:
        """An answer for each, from one call."""
        rows = [ask.rows for ask in batch]
        for ask in batch:
            ask.payload.cost = _cost(ask, begun, sum(rows))
        with _reported():
            merged = self._merge.merge([ask.payload for ask in batch])
            answer = _only(self._inner.infer(merged))
            answers = split(answer, rows)
            self._merge.write_back(merged, [ask.payload for ask in batch])
        took = _nanoseconds(self._clock() - begun)
        lead = next((at for at, ask in enumerate(batch) if not ask.reply.is_cancelled()), 0)
        for at, (ask, part) in enumerate(zip(batch, answers, strict=True)):
            part.cost = _cost(ask, begun, sum(rows), took, lead=at == lead)
        answers[lead].metrics = answer.metrics
        return answers

    def _failed(self, batch: list[Ask], error: PreforkError) -> None:
        if self._policy.retry_alone or error.status < 500:
            log.warning("a batch of %d requests failed, each is tried alone: %s", len(batch), error)
            self._each_alone(batch)
            return
        for ask in batch:
            ask.reply.fail(_twin(error))

    def _each_alone(self, batch: list[Ask]) -> None:
        for ask in batch:
            self._alone(ask)

    def _alone(self, ask: Ask) -> None:
        """Whatever it answers, a stream too, as it comes."""
        if ask.reply.is_cancelled():
            ask.reply.fail(expired())
            return
        try:
            with _reported():
                self._pass_on(ask)
        except Reschedule:
            self._again.append(
                Ask(ask.payload, ask.reply, ask.rows, level=ask.level, arrived=self._clock(), late=ask.late)
            )
        except PreforkError as error:
            ask.reply.fail(error)

    def _pass_on(self, ask: Ask) -> None:
        begun = self._clock()
        ask.payload.cost = _cost(ask, begun, ask.rows)
        answers = self._inner.infer(ask.payload)
        try:
            first = next(answers, None)
            # The only answer and the end go out together; the first of a stream is not kept until there is a second.
            is_stream = self._inner.spec.streams or gives_more(answers)
            second = None if is_stream else next(answers, None)
            if first is not None:
                first.cost = _cost(ask, begun, ask.rows, _nanoseconds(self._clock() - begun), lead=True)
                is_last = second is None and not is_stream
                ask.reply.answer(first, last=is_last)
                if is_last:
                    return
            self._stream(ask, second, answers)
        finally:
            _close(answers)

    def _stream(self, ask: Ask, second: Payload | None, rest: Iterator[Payload]) -> None:
        if second is not None:
            ask.reply.answer(second, last=False)
        while not ask.reply.is_cancelled():
            answer = next(rest, None)
            if answer is None:
                break
            ask.reply.answer(answer, last=False)
        ask.reply.end()


@contextmanager
def _reported() -> Iterator[None]:
    """What is no PreforkError is logged and becomes one."""
    try:
        yield
    except (PreforkError, Reschedule):
        raise
    except BaseException as error:
        if isinstance(error, Passing):
            raise
        log.exception("a batch failed inside the server")
        raise PreforkError(f"{type(error).__name__}: {error}") from error


def _close(answers: Iterator[Payload]) -> None:
    """Cancel what is left; what the model raises at that is logged and stops nothing."""
    close = getattr(answers, "close", None)
    if close is not None:
        try:
            close()
        except Exception:
            log.exception("closing a stream of the model failed")


def _only(answers: Iterator[Payload]) -> Payload:
    first, second = next(answers, None), next(answers, None)
    _close(answers)
    if first is None or second is not None:
        raise BadAnswer(
            "the model answers in parts, which cannot be batched; say so by making predict itself a generator"
        )
    return first


def _cost(ask: Ask, begun: float, rows: int, took: int = 0, *, lead: bool = False) -> Cost:
    return Cost(_nanoseconds(begun - ask.arrived), took, rows, lead)


def _nanoseconds(seconds: float) -> int:
    return max(0, int(seconds * 1e9))


def _twin(error: PreforkError) -> PreforkError:
    """The error once more: each of several threads raises one of its own."""
    twin = type(error).__new__(type(error))
    twin.__dict__.update(error.__dict__)
    twin.args, twin.__cause__ = error.args, error.__cause__
    return twin

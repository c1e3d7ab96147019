"""The three layers in their order."""

from __future__ import annotations

import gc
import logging
import signal
from collections.abc import Callable
from typing import TypeVar

from prefork.errors import PreloadRefused
from prefork.guard import report
from prefork.guard.examination import culprits
from prefork.guard.hold import Hold
from prefork.guard.offspring import Offspring, Say
from prefork.guard.trial import Begin, Limits, Trial
from prefork.guard.witness import Witness
from prefork.model.ownership import Ownership
from prefork.settings import Settings, thread_share

log = logging.getLogger("prefork")
T = TypeVar("T")


class Guard:
    """The guard of one server."""

    def __init__(self, settings: Settings) -> None:
        self._ownership = Ownership.of(settings.model, settings.model_dir)
        self._limits = Limits.of(settings)
        self._force = settings.preload_app == "force"
        self._hold = Hold(thread_share(settings))

    def build(self, construct: Callable[[], T], try_out: Callable[[T, Begin], str] | None) -> T:
        """What `construct` builds, once it is known to survive a fork. Raises PreloadRefused, or what `construct` raises.

        try_out: loads what was built and predicts; it is run in the trial child, which begins with its threads given
        back. None for no trial.
        """
        with self._hold:
            witness = Witness(construct, self._ownership)
            try:
                built = construct()
            except BaseException:
                witness.dismiss()
                raise
        is_clean = self._examine(witness)
        share_pages()
        if is_clean and try_out is not None:
            self._try(built, try_out)
        return built

    def rehearse(self, build: Callable[[], object]) -> None:
        """Do it in a child first, so that this process has nothing of it if it fails. Raises PreloadRefused."""
        rehearsal = Offspring(lambda say: _rehearse(build, say))
        try:
            line = rehearsal.line()
            code = rehearsal.end(signal.SIGCONT)
        except BaseException:
            rehearsal.end()
            raise
        if line is not None:
            raise PreloadRefused(line["refused"])
        if code:
            how = f"died by {signal.Signals(-code).name}" if code < 0 else "failed; its traceback stands above"
            raise PreloadRefused(f"the child that built the new code {how}")

    def give_back(self) -> None:
        """In a child: let it have its threads."""
        self._hold.give_back()

    def _examine(self, witness: Witness) -> bool:
        found = culprits()
        if found:
            self._refuse(PreloadRefused(report.refusal(found, witness.lines())))
        else:
            witness.dismiss()
        return not found

    def _try(self, built: T, try_out: Callable[[T, Begin], str]) -> None:
        if not self._limits.other:
            log.info("preload: no trial, since trial_timeout is 0")
            return

        def live(begin: Begin) -> str:
            self.give_back()
            return try_out(built, begin)

        try:
            outcome = Trial(live, self._ownership, self._limits).outcome()
        except PreloadRefused as refused:
            self._refuse(refused)
        else:
            say = log.warning if outcome.failed else log.info
            say("preload: nothing was found that a fork would break; the trial child: %s", outcome.text)

    def _refuse(self, refused: PreloadRefused) -> None:
        if not self._force:
            raise refused
        log.warning("forced: %s", refused)


def share_pages() -> None:
    """Have the pages of what was built stay shared: a collection in a child would write to each, and so copy it."""
    gc.unfreeze()  # of a model that was built before this one
    gc.collect()
    gc.freeze()


def _rehearse(build: Callable[[], object], say: Say) -> None:
    try:
        build()
    except PreloadRefused as refused:
        say({"refused": str(refused)})

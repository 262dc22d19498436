# SPDX-License-Identifier: Apache-2.0
"""`StateMachine`: the launch or the deletion of one instance, in steps (reference/driver 8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from nodepool.clock import monotonic

if TYPE_CHECKING:
    from nodepool.driver.statemachine.instance import Instance


def _nobody() -> None:
    """Stands for the framework until it drives the machine."""


def _always() -> bool:
    """Stands for the framework until it drives the machine."""
    return True


class StateMachine:
    """Subclasses implement `advance`.

    The framework never calls `advance` of one machine twice at once, but it advances several machines of one adapter
    at the same time, from a small pool of threads (see `Adapter.advance_threads`).
    """

    START: ClassVar[str] = "start"

    #: Optional hint, set by `advance`: seconds until the next call makes sense. None = the framework's pace: a few
    #: times a second for a young machine, about once a second later.
    next_advance_seconds: float | None = None
    #: Set by the framework before the first `advance`. Call it, from any thread, when something happened that the
    #: machine waits for: it is advanced at once. Neither blocks nor raises.
    wake: Callable[[], None] = staticmethod(_nobody)
    #: Set by the framework on create machines. Ask it, from any thread, right before something is made that was waited
    #: for: False = the launch is given up, or this launcher was stopped for so long that another one may have taken its
    #: place; make nothing and raise an error. Neither blocks nor raises.
    wanted: Callable[[], bool] = staticmethod(_always)

    #: Of a machine that deletes: does it send a deletion that had no effect again by itself? Else the framework makes
    #: another machine after a while.
    resends: ClassVar[bool] = False
    #: Set by the framework on create machines: the number of the attempt to launch the node, from 1.
    attempt: int = 1
    #: What the machine waits for, in the cloud's words: it is part of the error when the time is over.
    waits_for: str = ""
    #: Is ``external_id`` only a name so far, of an instance that is to be made?
    announced: bool = False

    def __init__(self) -> None:
        self.state: str = self.START
        #: A text, or a dict. A create machine sets it as soon as the cloud gives it; it is stored at once.
        self.external_id: Any = None
        self.complete = False
        #: Monotonic seconds.
        self.start_time = monotonic()

    def advance(self) -> Instance | None:
        """Go as far as is possible without waiting, and set ``complete`` at the end.

        Should not block for long: it holds up a thread of the pool, though no other machine.

        :return: of a create machine that is complete, the instance.
        :raises Exception: the attempt failed; its class decides what follows (reference/driver 13).
        """
        raise NotImplementedError

# SPDX-License-Identifier: Apache-2.0
"""`follow`: a long operation is looked at until it ends (AZ-12).

Azure tells where: ``Azure-AsyncOperation`` leads to its state, ``Location`` to what comes of it, with the status 202
until then. https://learn.microsoft.com/azure/azure-resource-manager/management/async-operations
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from nodepool.driver.azure.client import CALL_SECONDS, READ, Arm
from nodepool.driver.azure.errors import errors_in, meaning
from nodepool.driver.framework.cloud_errors import CloudNotFound, CloudRefused
from nodepool.driver.framework.http.retry_after import retry_after
from nodepool.driver.framework.image_time import ImageTime

if TYPE_CHECKING:
    from nodepool.driver.framework.http.rest_calls import RestAnswer

#: Longest time for one operation.
OPERATION_SECONDS: Final = 1800.0
#: From one look to the next, if Azure does not say; and at most.
POLL_SECONDS: Final = 2.0
LONGEST_POLL_SECONDS: Final = 10.0
#: Azure may not know a new operation or resource yet: for so long it is looked for, in seconds.
APPEARS_SECONDS: Final = 30.0
_ACCEPTED: Final = 202
#: How an operation can end; any other state is one of an operation that runs, as for azure-core.
_SUCCEEDED: Final = "succeeded"
_FAILED: Final = ("failed", "canceled", "cancelled")


class State(NamedTuple):
    """Of an operation.

    :param output: of one that has ended.
    """

    ended: bool
    output: Any = None


def follow(
    arm: Arm, answer: RestAnswer, what: str, clock: Callable[[], float], wanted: Callable[[], None] = lambda: None
) -> Any:
    """Wait for the end of an operation; returns its output, or the answer if there is no operation. Blocks.

    :param answer: to the call that began it.
    :param what: for errors.
    :param wanted: asked while it waits; what it raises ends it.
    :raises ImageCreateException: it took too long.
    :raises CloudRefused: it failed; or another error of `nodepool.driver.framework.cloud_errors`.
    """
    where = f"Provider {arm.calls.provider}: {what}"
    address = answer.headers.get("Azure-AsyncOperation") or ""
    by_location = not address and answer.status == _ACCEPTED
    if by_location:
        address = answer.headers.get("Location") or ""
    if not address:
        return answer.data
    pause = retry_after(answer.headers)

    def look() -> tuple[State, float | None]:
        nonlocal address
        found = arm.calls.call(READ, "GET", arm.checked(address), f"waiting for {what}", seconds=CALL_SECONDS)
        if by_location:
            address = found.headers.get("Location") or address
        told = retry_after(found.headers)
        return _at_location(found) if by_location else _told(found, where), pause if told is None else told

    return wait(arm, where, look, clock, wanted)


def wait(
    arm: Arm,
    where: str,
    look: Callable[[], tuple[State, float | None]],
    clock: Callable[[], float],
    wanted: Callable[[], None],
) -> Any:
    """Look until something has ended; returns its output. Blocks. Raises as `follow`.

    :param look: gives the state, and after how many seconds to look again, if Azure says. While the thing is new it may
        raise CloudNotFound.
    """
    time = ImageTime(where, OPERATION_SECONDS, arm.calls.stopped, clock, wanted)
    while True:
        seconds: float | None = None
        try:
            state, seconds = look()
        except CloudNotFound:
            if time.left() < OPERATION_SECONDS - APPEARS_SECONDS:
                raise
            state = State(False)
        if state.ended:
            return state.output
        time.check()
        wanted()
        if not time.wait(min(LONGEST_POLL_SECONDS, POLL_SECONDS if seconds is None else seconds)):
            time.check()
            raise time.over()


def _at_location(found: RestAnswer) -> State:
    """An operation that failed answers with an error."""
    return State(False) if found.status == _ACCEPTED else State(True, found.data)


def _told(found: RestAnswer, where: str) -> State:
    data = found.data if isinstance(found.data, dict) else {}
    status = str(data.get("status", "")).lower()
    if status == _SUCCEEDED:
        return State(True, (data.get("properties") or {}).get("output"))
    if status not in _FAILED:
        return State(False)
    errors = errors_in(data)
    raise meaning(f"{where} failed", errors) if errors else CloudRefused(f"{where} ended as {status!r}")

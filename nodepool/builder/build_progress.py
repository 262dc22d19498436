# SPDX-License-Identifier: Apache-2.0
"""The progress of a build, from the output of diskimage-builder. Pure: time is an argument."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

#: Before the first word of diskimage-builder.
STARTING: Final = "starting"

#: It writes the time before each line, unless ``DIB_NO_TIMESTAMP`` says not to.
_TIME: Final = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \| ")
#: A script begins; its phase is the last directory of ``/tmp/in_target.d/pre-install.d/10-foo``.
_SCRIPT: Final = re.compile(r"^dib-run-parts Running \S*?([\w.-]+)\.d/([\w.-]+)$")
#: Start of a line -> the step that begins with it.
_STEPS: Final = (
    ("Converting image using ", "converting"),
    ("Image file ", "finishing"),
    ("Build completed successfully", "completed"),
)


@dataclass(frozen=True)
class Step:
    """A part of a build that has ended.

    :param seconds: how long it took.
    """

    name: str
    seconds: float


def step_of(line: str) -> str | None:
    """The step that a line of output tells the begin of; None: it tells none."""
    text = _TIME.sub("", line)
    if text.startswith("+"):
        # What the shell traces has the texts, too, as arguments of echo.
        return None
    match = _SCRIPT.match(text)
    if match is not None:
        return match[1]
    return next((step for start, step in _STEPS if text.startswith(start)), None)


class BuildProgress:
    """The steps of one build. For one thread.

    :param now: seconds since the epoch.
    """

    def __init__(self, now: float) -> None:
        #: What is being done.
        self.step = STARTING
        #: Since when, in seconds since the epoch.
        self.since = now
        self.ended: list[Step] = []

    def read(self, line: str, now: float) -> bool:
        """Take a line of output. True: another step has begun."""
        step = step_of(line)
        if step is None or step == self.step:
            return False
        self.end(now)
        self.step, self.since = step, now
        return True

    def end(self, now: float) -> None:
        """The present step has ended."""
        self.ended.append(Step(self.step, max(0.0, now - self.since)))

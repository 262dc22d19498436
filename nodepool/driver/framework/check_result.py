# SPDX-License-Identifier: Apache-2.0
"""`CheckResult`: what ``nodepool check`` found out about one thing that a configuration names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: How errors of `nodepool.driver.framework.http` begin when nobody answers, and what to do then.
_NO_ANSWER: Final = "no answer from "
_REACH: Final = "correct the address, or let this machine reach it: network, firewall, proxy"


@dataclass(frozen=True)
class CheckResult:
    """One line of the command.

    :param subject: what was looked at, such as ``label small`` or ``host node9:22``.
    :param ok: False: nothing can be served with it as it is.
    :param text: what was found, in one line.
    :param remedy: what to do about it. With ``ok`` it makes the result a warning.
    """

    subject: str
    ok: bool
    text: str
    remedy: str = ""

    @property
    def status(self) -> str:
        """``ok``, ``warning`` or ``failed``."""
        if not self.ok:
            return "failed"
        return "warning" if self.remedy else "ok"


def failure(subject: str, error: object) -> CheckResult:
    """The result for an error; what its text says after its last semicolon is the remedy."""
    text = " ".join(str(error).split()) or type(error).__name__
    said, found, remedy = text.rpartition("; ")
    if found:
        return CheckResult(subject, False, said, remedy)
    return CheckResult(subject, False, text, _REACH if _NO_ANSWER in text else "")

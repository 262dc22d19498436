# SPDX-License-Identifier: Apache-2.0
"""`CheckResult`: what ``nodepool check`` found out about one thing that a configuration names."""

from __future__ import annotations

from dataclasses import dataclass


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
    return CheckResult(subject, False, said, remedy) if found else CheckResult(subject, False, text)

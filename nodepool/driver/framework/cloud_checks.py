# SPDX-License-Identifier: Apache-2.0
"""`CloudChecks`: how the checks of a provider end for ``nodepool check`` when its cloud refuses to answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

from nodepool.driver.framework.check_result import CheckResult, failure
from nodepool.exceptions import LaunchError, RuntimeConfigurationException

P = ParamSpec("P")


class CloudChecks:
    """
    :param provider: its name, with which errors of its cloud may begin. The table of results says it already.
    """

    def __init__(self, provider: str) -> None:
        self._heads = (f"Provider {provider}: ", f"provider {provider}, ")

    def results(
        self, subject: str, check: Callable[P, list[CheckResult]], *args: P.args, **kwargs: P.kwargs
    ) -> list[CheckResult]:
        """Calls a check. The results, or one that says what the cloud refused, or that the configuration cannot work.

        :param subject: what is looked at, as in `CheckResult`.
        """
        try:
            return check(*args, **kwargs)
        except (LaunchError, RuntimeConfigurationException) as error:
            return [self.failure(subject, error)]

    def failure(self, subject: str, error: Exception) -> CheckResult:
        """The result for an error, without the name of the provider."""
        return failure(subject, self.said(error))

    def said(self, error: Exception) -> str:
        """The text of an error, without the name of the provider."""
        text = str(error)
        for head in self._heads:
            text = text.removeprefix(head)
        return text

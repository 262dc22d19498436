# SPDX-License-Identifier: Apache-2.0
"""Checks of drivers.

First what ``nodepool check`` found out about one thing (`CheckResult`), then whether the classes of a driver implement
what their bases require, then how checks end when a cloud refuses to answer, and what limits allow.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from nodepool.exceptions import LaunchError, RuntimeConfigurationException
from nodepool.model.quota import QuotaInformation

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


# Checks that the classes of a driver implement everything that their base classes require.
#
# One error lists everything that is missing.

T = TypeVar("T")


class ContractError(TypeError):
    """A driver's class is not complete, or not of the right kind."""


def missing_members(cls: type[Any]) -> list[str]:
    """Names of abstract members that a class must still implement, sorted."""
    return sorted(getattr(cls, "__abstractmethods__", ()))


def check(cls: type[Any], origin: str) -> None:
    """Refuse an incomplete class.

    :param origin: what the class belongs to, for the message, e.g. ``driver 'aws'``.
    :raises ContractError: names all that is missing.
    """
    missing = missing_members(cls)
    if missing:
        raise ContractError(f"{origin}: class {cls.__name__} must implement {', '.join(missing)}")


def check_instance(value: T, base: type[Any], origin: str) -> T:
    """Refuse what a driver returned if it is not an object of the class that the contract asks for.

    :return: ``value``.
    :raises ContractError: it is not.
    """
    if not isinstance(value, base):
        raise ContractError(f"{origin} must return a {base.__name__}, not {type(value).__name__}")
    return value


# `CloudChecks`: how the checks of a provider end for ``nodepool check`` when its cloud refuses to answer.

P = ParamSpec("P")


class Found(NamedTuple):
    """A problem, or with ``ok`` a warning, or something that is in order; see `CheckResult`."""

    text: str
    remedy: str = ""
    ok: bool = False


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

    def all(
        self, where: str, first: Callable[[], str], others: Callable[[CloudChecks], Iterator[CheckResult]]
    ) -> Iterator[CheckResult]:
        """All problems, and a line for what is in order. Blocks for some calls to the cloud.

        :param first: of the cloud, ``where``; returns what is in order. If it fails, nothing else can be asked.
        :param others: the results of all other checks.
        """
        try:
            text = first()
        except LaunchError as error:
            yield self.failure(where, error)
            return
        yield CheckResult(where, True, text)
        yield from others(self)

    def about(self, subject: str, good: str, *checks: Callable[[], Iterable[Found] | None]) -> Iterator[CheckResult]:
        """What some checks find, or what the cloud refuses; and a line if all is in order.

        :param good: that line; "" = none.
        """
        results: list[CheckResult] = []
        for check in checks:
            try:
                results += [CheckResult(subject, found.ok, found.text, found.remedy) for found in check() or ()]
            except (LaunchError, RuntimeConfigurationException) as error:
                results.append(self.failure(subject, error))
        yield from results
        if good and all(result.ok for result in results):
            yield CheckResult(subject, True, good)

    def failure(self, subject: str, error: Exception) -> CheckResult:
        """The result for an error, without the name of the provider."""
        return failure(subject, self.said(error))

    def said(self, error: Exception) -> str:
        """The text of an error, without the name of the provider."""
        text = str(error)
        for head in self._heads:
            text = text.removeprefix(head)
        return text


def of_limits(
    pools: Iterable[Any], limits: Mapping[str, float], need_of: Callable[[Any], QuotaInformation], called: str, at: str
) -> list[Found]:
    """How many nodes of each label some limits of a cloud allow, were there no others.

    :param limits: by name.
    :param need_of: says what a node of a label needs of them. What is wrong with a label is found elsewhere.
    :param called: what the cloud calls a limit, such as ``quota {}``.
    :param at: where there is more, such as ``Service Quotas``.
    """
    known: set[str] = set()
    found: list[Found] = []
    for label in [label for pool in pools for label in pool.labels.values()]:
        pool = label.pool
        needs: Mapping[str, float] = {}
        with contextlib.suppress(LaunchError, RuntimeConfigurationException):
            needs = need_of(label).get_resources()
        for name in [name for name in limits if needs.get(name)]:
            known.add(f"{name}: {limits[name]:.15g}")
            most = math.floor(limits[name] / needs[name])
            if most >= 1 and most >= pool.max_servers:
                continue
            wanted = "any number" if math.isinf(pool.max_servers) else f"{pool.max_servers:g}"
            text = (
                f"{called.format(name)} is {limits[name]:.15g}: it allows {most} nodes of label {label.name}, "
                f"max-servers of pool {pool.name} allows {wanted}"
            )
            remedy = f"ask for more of {name} under {at}, or lower max-servers; the smaller one counts"
            found.append(Found(text, remedy, ok=most >= 1))
    return found or [Found(", ".join(sorted(known)) or "no limit concerns the labels", ok=True)]

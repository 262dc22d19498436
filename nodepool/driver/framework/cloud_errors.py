# SPDX-License-Identifier: Apache-2.0
"""What can go wrong in a call to a cloud, named after what the launcher does next (reference/driver 13).

A driver maps the error codes of its cloud to these classes, by a table of codes (`CodedErrors`). After them come texts
of clouds, why a cloud did not answer, and when it wants to be asked again, then what ``nodepool check`` finds out.
"""

from __future__ import annotations

import contextlib
import email.utils
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple, ParamSpec, TypeVar

from nodepool import exceptions
from nodepool.clock import wall_time
from nodepool.driver.config import ConfigPool
from nodepool.model.node import QuotaInformation

P = ParamSpec("P")
T = TypeVar("T")


class CloudAway(exceptions.CloudUnavailableException):
    """No answer, or one that says nothing: timeouts, broken connections, 5xx, too many requests.

    :param maybe_done: the cloud may have received the call and carried it out.
    """

    def __init__(self, text: str, maybe_done: bool = True, code: str = "") -> None:
        super().__init__(text)
        self.maybe_done = maybe_done
        self.code = code


class NotFoundByProxy(CloudAway):
    """404 from something before the cloud, such as a proxy: alone it says nothing of what was asked for."""


@contextlib.contextmanager
def nothing_sent() -> Iterator[None]:
    """A context for the calls before a creation, which only read: without an answer, nothing was made.

    :raises CloudAway: a call inside had no answer; ``maybe_done`` is False.
    """
    try:
        yield
    except CloudAway as error:
        if not error.maybe_done:
            raise
        raise CloudAway(str(error), maybe_done=False, code=error.code) from error


def sent_again(call: Callable[[], T]) -> T:
    """What a call returns that makes nothing new when it is sent again: so it is, when it has no answer."""
    for _ in range(2):
        try:
            return call()
        except CloudAway as error:
            if not error.maybe_done:
                raise
    return call()


class LoginRefused(CloudAway):
    """The credentials are not valid, or not valid any more. Nothing was done."""

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text, maybe_done=False, code=code)


class CloudRefused(exceptions.LaunchError):
    """The cloud understood a call and refused it. A failed attempt; the same call will not succeed.

    :param status: of HTTP; 0 = the refusal came in another way.
    :param said: the cloud's own words, without provider and call; "" = they are the whole text.
    :param code: the cloud's name of the error; "" = it has none.
    """

    def __init__(self, text: str, status: int = 0, said: str = "", code: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.said = said or text
        self.code = code


class CloudNotFound(CloudRefused, exceptions.NotFound):
    """The object of the call does not exist."""


class CloudSetup(CloudRefused, exceptions.LaunchNodepoolException):
    """Something that the configuration names does not exist, or is not allowed."""

    statsd_key = exceptions.LaunchNodepoolException.statsd_key


class CloudQuota(CloudRefused, exceptions.QuotaException):
    """A quota is used up. The launch waits; it is no failed attempt."""

    statsd_key = exceptions.QuotaException.statsd_key


class CloudNoCapacity(CloudRefused, exceptions.CapacityException):
    """The cloud has no capacity in this place. Another zone or type may have some."""

    statsd_key = exceptions.CapacityException.statsd_key


class CloudNoCapacityLater(exceptions.LaunchStatusException, exceptions.CapacityException):
    """The cloud accepted a creation, and found no capacity then, or took the capacity away during the launch."""

    statsd_key = exceptions.CapacityException.statsd_key


# `CodedErrors`: what the error codes of a cloud mean (CM-6). Pure.


class CodedError(NamedTuple):
    """One error of an answer, one of its details, or one reason of a status."""

    code: str
    message: str

    def __str__(self) -> str:
        return ": ".join(filter(None, self))


def codes(named: str) -> frozenset[str]:
    """A set of error codes, which are separated by blanks."""
    return frozenset(named.split())


class CodedErrors:
    """A driver names the codes, and overrides the methods where the code alone does not tell."""

    #: A quota is used up. It may be free again soon, so the launch waits.
    quota: ClassVar[frozenset[str]] = frozenset()
    #: There is no capacity in this place. Others may have some.
    capacity: ClassVar[frozenset[str]] = frozenset()
    #: Does that count, although a quota is used up, too?
    capacity_first: ClassVar[bool] = False
    #: Too many calls: nothing was done.
    throttled_codes: ClassVar[frozenset[str]] = frozenset()
    #: The credentials are not, or no longer, valid: nothing was done.
    login: ClassVar[frozenset[str]] = frozenset()
    #: The credentials are good, but not for this.
    denied: ClassVar[frozenset[str]] = frozenset()
    #: The cloud has trouble of its own. Who knows what was done?
    away: ClassVar[frozenset[str]] = frozenset()
    #: Refused only for now: something else is under way; and the class of such an error.
    busy: ClassVar[frozenset[str]] = frozenset()
    busy_error: ClassVar[type[CloudRefused]] = CloudRefused
    #: Something has the name already. A remedy does not make it an error of the configuration.
    exists: ClassVar[frozenset[str]] = frozenset()
    #: Where an answer has several errors: does the last one say most?
    last_says_most: ClassVar[bool] = False
    #: The remedy for each code that has one; where there is more quota; what to do about the credentials.
    remedies: ClassVar[Mapping[str, str]] = {}
    more_quota: ClassVar[str]
    check_login: ClassVar[str] = "check the credentials"

    def errors_in(self, data: Any) -> list[CodedError]:
        """All errors in what a cloud answered, whatever its shape."""
        raise NotImplementedError

    def is_quota(self, error: CodedError) -> bool:
        return error.code in self.quota

    def is_throttling(self, error: CodedError) -> bool:
        return error.code in self.throttled_codes

    def is_busy(self, error: CodedError) -> bool:
        return error.code in self.busy

    def remedy_for(self, errors: Sequence[CodedError], status: int) -> str | None:
        """What an operator can do, unless the kind of the error says it."""
        return next((self.remedies[error.code] for error in errors if error.code in self.remedies), None)

    def not_found(self, text: str, errors: Sequence[CodedError], code: str) -> CloudRefused | CloudAway:
        """The exception for the status 404."""
        return CloudNotFound(text, code=code, status=404)

    def meaning(self, head: str, errors: Sequence[CodedError], status: int = 0) -> CloudRefused | CloudAway:
        """The exception for errors that a cloud tells.

        :param head: whose call it was, and which.
        :param status: of HTTP; 0 = they are those of an operation or of a state.
        """

        telling = errors[::-1] if self.last_says_most else errors

        def first(fits: Callable[[CodedError], bool]) -> str | None:
            return next((error.code for error in telling if fits(error)), None)

        def coded(codes: frozenset[str]) -> str | None:
            return first(lambda error: error.code in codes)

        text = f"{head}: {texts_of(errors) or f'status {status}'}"
        remedy = self.remedy_for(telling, status)
        remedied = f"{text}; {remedy}" if remedy else text
        code = first(lambda error: bool(error.code)) or str(status)
        busy = first(self.is_busy)
        no_capacity = coded(self.capacity)
        if no_capacity and self.capacity_first:
            return CloudNoCapacity(remedied, code=no_capacity, status=status)
        if (status == 429 and not busy) or first(self.is_throttling):
            return CloudAway(text, maybe_done=False, code=coded(self.throttled_codes) or code)
        if quota := first(self.is_quota):
            return CloudQuota(f"{text}; {self.remedies.get(quota, self.more_quota)}", code=quota, status=status)
        if no_capacity:
            return CloudNoCapacity(remedied, code=no_capacity, status=status)
        if status == 401 or coded(self.login):
            return LoginRefused(f"{text}; {remedy or self.check_login}", coded(self.login) or code)
        if status == 404:
            return self.not_found(remedied, errors, code)
        if busy:
            return self.busy_error(remedied, code=busy, status=status)
        if status == 403 or coded(self.denied):
            return CloudSetup(remedied, code=coded(self.denied) or code, status=status)
        if status >= 500 or status == 408 or coded(self.away):
            return CloudAway(remedied, code=coded(self.away) or code)
        kind = CloudSetup if remedy and not coded(self.exists) else CloudRefused
        return kind(remedied, code=code, status=status)


def mappings_in(data: Any) -> list[Mapping[str, Any]]:
    """The entries of a list that are mappings; anything else has none."""
    return [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []


def texts_of(errors: Iterable[CodedError]) -> str:
    """Codes and messages in one line, each once."""
    return one_line(" / ".join(dict.fromkeys(map(str, errors))))


# Texts of clouds, made fit for errors and the log. Pure functions.

#: Longest text of a cloud that goes into an error or the log.
MAX_TEXT: Final = 500
_LOGIN_IN_URL: Final = re.compile(r"://[^/\s@]{1,200}@")


def without_login(text: str) -> str:
    """Without line breaks, and without user and password in addresses."""
    return _LOGIN_IN_URL.sub("://", " ".join(text.split()))


def one_line(text: str) -> str:
    """Without line breaks, not too long, and without user and password in addresses."""
    line = without_login(text)
    return line if len(line) <= MAX_TEXT else line[: MAX_TEXT - 3] + "..."


# Why did a cloud not answer? In one line that names the address, from what the libraries say. Pure functions.

#: An address at which no one could be reached, in the texts of keystoneauth, and the same in those of requests.
_ADDRESS: Final = (
    re.compile(
        r"(?:Unable to establish connection to|SSL exception connecting to|Request to) "
        r"(https?://[^\s:]+(?::\d+)?[^\s:]*)"
    ),
    re.compile(r"(?:Pool|Connection)\(host='([^']+)', port='?(\d+)'?\)"),
)
#: What is found in a text -> the cause; the first that matches counts. ``{}`` is what the expression found.
_CAUSES: Final = (
    (re.compile(r"certificate verify failed: ([^(\[\]]+?)\s*\("), "its certificate is not accepted ({})"),
    (
        re.compile(r"WRONG_VERSION_NUMBER|wrong version number"),
        "it does not speak TLS there (is it http:// instead of https://?)",
    ),
    (re.compile(r"\b(?:SSLError|NoTls)\b|SSL exception"), "the TLS handshake failed"),
    (
        re.compile(r"Name or service not known|NameResolutionError|getaddrinfo|name resolution", re.IGNORECASE),
        "the name cannot be resolved",
    ),
    (re.compile(r"Connection refused"), "connection refused"),
    (re.compile(r"(No route to host|Network is unreachable)"), "{}"),
    (re.compile(r"timed out", re.IGNORECASE), "timed out"),
    (
        re.compile(r"(Connection reset by peer|Connection aborted|RemoteDisconnected|Broken pipe)"),
        "the connection broke ({})",
    ),
)


def no_answer(text: str, address: str | None = None) -> str | None:
    """Address and cause, such as ``no answer from https://cloud:5000/v3: connection refused``.

    :param text: what a library says of a call, without logins in addresses.
    :param address: if it is known; else the text has it.
    :return: None = the text is about something else, such as an answer that was there.
    """
    cause = next((said.format(*found.groups()) for sign, said in _CAUSES if (found := sign.search(text))), None)
    address = address or _address_in(text)
    if cause is None or address is None:
        return None
    return f"no answer from {address}: {cause}"


def _address_in(text: str) -> str | None:
    found = _ADDRESS[0].search(text)
    if found is not None:
        return found[1].rstrip("'\",.")
    found = _ADDRESS[1].search(text)
    return None if found is None else f"{found[1]}:{found[2]}"


# When a server wants to be asked again.


def asks_for_a_pause(status: int, headers: Mapping[str, str]) -> bool:
    """Does an answer say that there were too many calls? 429 always does, 413 and 503 with ``Retry-After``.

    413 with ``Retry-After: 0`` is how Cinder says that a quota is used up.
    """
    after = headers.get("Retry-After")
    return status == 429 or (status == 503 and after is not None) or (status == 413 and after not in (None, "0"))


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds of ``Retry-After``, which may be a number or a date (RFC 9110, 10.2.3); None = it is not there."""
    text = headers.get("Retry-After")
    if not text:
        return None
    try:
        return max(0.0, float(text))
    except ValueError:
        when = email.utils.parsedate_tz(text)
        return None if when is None else max(0.0, email.utils.mktime_tz(when) - wall_time())


# What ``nodepool check`` found out about one thing.

#: How errors of `nodepool.driver.framework.http` begin when no one answers, and what to do then.
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


# `CloudChecks`: how the checks of a provider end for ``nodepool check`` when its cloud refuses to answer.


class Found(NamedTuple):
    """A problem, or with ``ok`` a warning, or something that is in order; see `CheckResult`."""

    text: str
    remedy: str = ""
    ok: bool = False


def room_for(pools: Iterable[ConfigPool], limit: float, text: str, more: str) -> Found:
    """Do pools with ``max-servers`` allow more instances than a limit? That is a warning: the limit counts, too.

    :param text: says the limit.
    :param more: how it is raised, such as ``raise the quota``.
    """
    wanted = sum(pool.max_servers for pool in pools)
    if wanted <= limit or math.isinf(wanted):
        return Found(text, ok=True)
    remedy = f"lower max-servers, or {more}; the smaller one counts"
    return Found(f"{text}, max-servers of the pools allow {wanted:g}", remedy, ok=True)


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
        with contextlib.suppress(exceptions.LaunchError, exceptions.RuntimeConfigurationException):
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
        except (exceptions.LaunchError, exceptions.RuntimeConfigurationException) as error:
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
        except exceptions.LaunchError as error:
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
            except (exceptions.LaunchError, exceptions.RuntimeConfigurationException) as error:
                results.append(self.failure(subject, error))
        yield from results
        if good and all(result.ok for result in results):
            yield CheckResult(subject, True, good)

    def labels(self, pool: Any, good: str, *checks: Callable[[Any], Iterable[Found] | None]) -> Iterator[CheckResult]:
        """The same of each label of a pool, which the checks get."""
        for label in pool.labels.values():
            of_label = [partial(check, label) for check in checks]
            yield from self.about(f"label {label.name} of pool {pool.name}", good, *of_label)

    def failure(self, subject: str, error: Exception) -> CheckResult:
        """The result for an error, without the name of the provider."""
        return failure(subject, self.said(error))

    def said(self, error: Exception) -> str:
        """The text of an error, without the name of the provider."""
        text = str(error)
        for head in self._heads:
            text = text.removeprefix(head)
        return text


# What is not there.


def or_none(ask: Callable[[], T]) -> T | None:
    """What a call returns; None = what it asks for is not there."""
    try:
        return ask()
    except CloudNotFound:
        return None


@contextlib.contextmanager
def else_correct(what: str) -> Iterator[None]:
    """A context for a question after something that the configuration names.

    :param what: keys of the configuration.
    :raises CloudSetup: it is not there.
    """
    try:
        yield
    except CloudNotFound as error:
        raise CloudSetup(f"{error}; {what}", code=error.code, status=404) from error

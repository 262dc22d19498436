# SPDX-License-Identifier: Apache-2.0
"""`RestCalls`: the calls of one provider to an API that speaks JSON: pace, repeats, login, and errors.

A driver says what an error answer means (`RestApi`) and how it logs in (`RestLogin`). A call that the cloud throttles
is made again later, and its class as a whole waits (CM-5). A call that only reads is made again after an error of the
server. Any other call without an answer is the matter of the caller: it may have been carried out.
"""

from __future__ import annotations

import abc
import contextlib
import json
import logging
import re
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudAway, NotFoundByProxy
from nodepool.driver.framework.cloud_texts import one_line
from nodepool.driver.framework.http.retry_after import asks_for_a_pause, retry_after
from nodepool.driver.framework.rate import RateLimiter
from nodepool.driver.framework.rate_classes import Call, RateClasses
from nodepool.driver.framework.token_bucket import BucketSize
from nodepool.plan.backoff import Backoff

if TYPE_CHECKING:
    from nodepool.driver.framework.http.plain_http import Body, HttpAnswer, PlainHttp

log = logging.getLogger("nodepool.driver.framework.RestCalls")

#: Attempts of a call that the cloud throttles.
THROTTLED_ATTEMPTS: Final = 6
#: Attempts of a call that only reads, and pauses between them.
READ_ATTEMPTS: Final = 3
READ_AGAIN: Final = Backoff(0.5, 4.0)
#: Methods that change nothing.
_READS: Final = ("GET", "HEAD")
#: Statuses that a proxy may have of its own, with a page: the login or the thing that was asked for is not to blame. By
#: 404 and 410 of a PUT an object store says that an upload is over.
_OF_PROXIES: Final = (401, 403, 404, 407, 410)
_OF_UPLOADS: Final = (404, 410)
_NOT_FOUND: Final = 404
#: Longest part of an answer in an error.
_SHOWN: Final = 120
#: What an operator reads where the answer is not the cloud's.
PROXY: Final = "is it a proxy that answers there?"

T = TypeVar("T")
#: Scheme, host and port of a URL. What programs read in different ways, such as a login or a backslash, is not in it.
_ORIGIN: Final = re.compile(r"(https?)://([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::([0-9]*))?(?=[/?#]|$)", re.IGNORECASE)
_PORTS: Final = {"http": "80", "https": "443"}


def same_server(url: object, ours: str) -> bool:
    """Does a URL that a cloud gave lead to a server of ours? No other server may see our token. Pure.

    Clouds add the default port, and change the case of host names: ``https://management.azure.com:443/...``.

    :param ours: URL of the API, of the configuration.
    """
    found = _ORIGIN.match(url) if isinstance(url, str) else None
    wanted = _ORIGIN.match(ours)
    return found is not None and wanted is not None and _server(found) == _server(wanted)


def _server(origin: re.Match[str]) -> tuple[str, str, int]:
    """Scheme, host and port."""
    scheme = origin[1].lower()
    return scheme, origin[2].lower(), int(origin[3] or _PORTS[scheme])


class RestAnswer(NamedTuple):
    """A successful answer. ``data`` is None when there was no content."""

    status: int
    data: Any
    headers: Mapping[str, str]


class RestLogin(Protocol):
    """Credentials of a provider. Any thread."""

    def headers(self) -> Mapping[str, str]:
        """What a call needs to be accepted; may block. Raises CloudAway, LoginRefused."""

    def refused(self, headers: Mapping[str, str]) -> None:
        """A call was answered with 401: what `headers` gave for it is not valid any more."""


class RestApi(abc.ABC):
    """What the answers of a cloud mean. Pure."""

    def throttled(self, answer: HttpAnswer) -> bool:
        """Was nothing done because there were too many calls?"""
        return answer.status == 429

    def seconds_left_alone(self, kind: str, answer: HttpAnswer) -> float | None:
        """For how long a class of calls should pause although this call was accepted; None = it need not."""
        return None

    @abc.abstractmethod
    def error(self, head: str, answer: HttpAnswer) -> Exception:
        """The exception for an answer of status 400 or more.

        :param head: whose call it was, and which.
        """


class RestCalls:
    """Thread-safe; all calls block. ``stopped`` ends what waits.

    :param provider: name, for errors.
    :param sizes: of the classes of calls; ``default`` of those that are not named.
    :param ceiling: calls per second, of all classes together; 0 = no limit but those of the classes.
    """

    def __init__(
        self,
        provider: str,
        http: PlainHttp,
        api: RestApi,
        login: RestLogin,
        sizes: Mapping[str, BucketSize],
        default: BucketSize,
        clock: Callable[[], float] = monotonic,
        ceiling: float = 0.0,
    ) -> None:
        self.provider = provider
        self.stopped = threading.Event()
        self._http = http
        self._api = api
        self._login = login
        self._classes = RateClasses(sizes, default, clock, self._sleep)
        self._ceiling = RateLimiter(provider, ceiling, clock, self._sleep)

    def close(self) -> None:
        """Calls that wait for their turn end; no new ones begin. Those under way may end."""
        self.stopped.set()
        self._http.close()

    def call(
        self,
        kind: str,
        method: str,
        url: str,
        what: str,
        *,
        body: Any = None,
        content: Body = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        seconds: float | None = None,
        permit: Callable[[], None] = lambda: None,
    ) -> RestAnswer:
        """Make one call.

        :param kind: class of the call, for the pace.
        :param what: for errors, e.g. ``listing instances``.
        :param body: sent as JSON; or ``content``: sent as it is. Pieces can be sent once only.
        :param seconds: time-out of each wait; None = the default.
        :param permit: asked when the turn has come, each time; raises an error if the call must not be made any more.
        :raises CloudAway: no answer, trouble of the cloud, or an answer that is not JSON.
        :raises Exception: what `RestApi.error` returns.
        """
        given = dict(headers or {})
        if body is not None:
            content = json.dumps(body).encode()
            given.setdefault("Content-Type", "application/json")
        again = content is None or isinstance(content, bytes)
        attempts = READ_ATTEMPTS if method in _READS else 1
        for attempt in range(1, attempts + 1):
            try:
                answer = self._send(kind, method, url, what, given, content, query, seconds, permit, again)
                if answer.status in _OF_PROXIES and not (method == "PUT" and answer.status in _OF_UPLOADS):
                    self._check_no_page(answer, what, method)
                if answer.status >= 400:
                    raise self._api.error(self._head(what), answer)
                return RestAnswer(answer.status, self._data(answer, what), answer.headers)
            except CloudAway as error:
                if attempt == attempts or not error.maybe_done:
                    raise
                log.debug("Provider %s: %s, trying again", self.provider, error)
                self._sleep(READ_AGAIN.pause(attempt))
        raise AssertionError("the last attempt returns or raises")

    def read(self, what: str, of: Callable[[Any], T], data: Any) -> T:
        """What a part of an answer says.

        :param what: for errors, as in `call`.
        :param of: makes a value of it.
        :raises CloudAway: it lacks what it must have, or has it in another form.
        """
        try:
            return of(data)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            shown = one_line(str(data)[:_SHOWN])
            text = f"{self._head(what)}: the answer cannot be understood ({type(error).__name__}: {error}): {shown}"
            raise CloudAway(text) from error

    def pause(self, seconds: float) -> None:
        """Wait; raises CloudAway when the provider is stopped."""
        if seconds > 0:
            self._sleep(seconds)

    # -- inside --

    def _send(
        self,
        kind: str,
        method: str,
        url: str,
        what: str,
        headers: Mapping[str, str],
        content: Body,
        query: Mapping[str, str] | None,
        seconds: float | None,
        permit: Callable[[], None],
        again: bool,
    ) -> HttpAnswer:
        """One call with an answer of any status but those of throttling and of an old login."""
        renewed = False
        # How long data take says nothing of the cloud.
        name = what if content is None or "json" in headers.get("Content-Type", "") else ""
        for attempt in range(1, THROTTLED_ATTEMPTS + 1):
            with self._turn(kind, what, name) as turn:
                login = self._login.headers()
                permit()
                answer = self._exchange(method, url, what, {**headers, **login}, content, query, seconds)
                throttled = self._api.throttled(answer)
                if throttled or asks_for_a_pause(answer.status, answer.headers):
                    pause = turn.throttled(retry_after(answer.headers))
                    log.info(
                        "Provider %s: %s is put off by the cloud (%d), no calls of its class for %.1f s",
                        *(self.provider, what, answer.status, pause),
                    )
                    if throttled and attempt < THROTTLED_ATTEMPTS and again:
                        continue
                elif answer.status == 401 and not renewed:
                    renewed = True
                    self._login.refused(login)
                    if again:
                        continue
                else:
                    self._accepted(kind, turn, answer)
                return answer
        return answer

    def _accepted(self, kind: str, turn: Call, answer: HttpAnswer) -> None:
        seconds = self._api.seconds_left_alone(kind, answer)
        if seconds is None:
            turn.worked(done=answer.status < 400)
        else:
            turn.throttled(seconds)

    def _exchange(
        self,
        method: str,
        url: str,
        what: str,
        headers: Mapping[str, str],
        content: Body,
        query: Mapping[str, str] | None,
        seconds: float | None,
    ) -> HttpAnswer:
        from nodepool.driver.framework.http.plain_http import DEFAULT_SECONDS, NoAnswer

        started, status = monotonic(), "no answer"
        try:
            answer = self._http.send(method, url, headers, content, query, seconds or DEFAULT_SECONDS)
            status = str(answer.status)
            return answer
        except NoAnswer as error:
            raise CloudAway(f"{self._head(what)}: {error}", maybe_done=error.maybe_done) from error
        finally:
            # Without the query: it may hold a signature.
            place = url.partition("?")[0]
            log.debug("Provider %s: %s %s: %s in %.3f s", self.provider, method, place, status, monotonic() - started)

    def _data(self, answer: HttpAnswer, what: str) -> Any:
        if "json" not in answer.headers.get("Content-Type", "json"):
            # Of an object store, for example.
            return answer.content
        try:
            return answer.json()
        except (ValueError, RecursionError):
            text = f"{self._head(what)}: the answer is not JSON but {_shown(answer)!r}; {PROXY}"
            raise CloudAway(text) from None

    def _check_no_page(self, answer: HttpAnswer, what: str, method: str) -> None:
        """:raises CloudAway: not the cloud answers, but a proxy with a page. A read is sent again."""
        if is_page(answer):
            text = f"{self._head(what)}: the answer {answer.status} is not the cloud's but {_shown(answer)!r}; {PROXY}"
            kind = NotFoundByProxy if answer.status == _NOT_FOUND else CloudAway
            raise kind(text, maybe_done=method in _READS, code=str(answer.status))

    def _head(self, what: str) -> str:
        return f"Provider {self.provider}: {what} failed"

    def _turn(self, kind: str, what: str, name: str) -> contextlib.AbstractContextManager[Call]:
        if self.stopped.is_set():
            raise CloudAway(f"{self._head(what)}: the provider was stopped", maybe_done=False)
        # First: a turn of the class is void when the cloud throttles the class meanwhile.
        self._ceiling.wait()
        return self._classes.call(kind, name)

    def _sleep(self, seconds: float) -> None:
        if self.stopped.wait(seconds):
            raise CloudAway(f"Provider {self.provider}: the provider was stopped", maybe_done=False)


def is_page(answer: HttpAnswer) -> bool:
    """Is an answer a web page, and so that of a proxy?"""
    return answer.content[:100].lstrip().lower().startswith((b"<!doctype html", b"<html"))


def _shown(answer: HttpAnswer) -> str:
    """The beginning of an answer."""
    return one_line(answer.content[:400].decode("utf-8", "replace"))[:_SHOWN]

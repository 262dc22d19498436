# SPDX-License-Identifier: Apache-2.0
"""The calls of one provider to an API that speaks JSON: pace, repeats, login, and errors.

A driver says what an error answer means (`RestApi`) and how it logs in (`RestLogin`). A call that the cloud throttles
is made again later, and its class as a whole waits (CM-5). A call that only reads is made again after an error of the
server. Any other call without an answer is the matter of the caller: it may have been carried out. After the calls
comes the login by bearer tokens.
"""

from __future__ import annotations

import abc
import codecs
import contextlib
import json
import logging
import os
import re
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeVar

from nodepool import fast_json
from nodepool.clock import monotonic
from nodepool.driver.framework import cloud_errors
from nodepool.driver.framework.rate import BucketSize, Call, RateClasses, RateLimiter
from nodepool.plan.retries import Backoff

#: A body: bytes, or pieces of one that is too long for the memory.
Body = bytes | Iterable[bytes] | None


class NoAnswer(Exception):
    """A call got no answer, or none that is HTTP.

    :param text: one line with address and cause, without logins.
    :param maybe_done: the server may have received the call and carried it out.
    """

    def __init__(self, text: str, maybe_done: bool) -> None:
        super().__init__(text)
        self.maybe_done = maybe_done


class HttpAnswer(NamedTuple):
    """An answer of any status. Names in ``headers`` ignore case."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def status_code(self) -> int:
        """As requests calls it."""
        return self.status

    def json(self) -> Any:
        """The value in the content, without a byte order mark; None = there is no content. Raises ValueError."""
        content = self.content.removeprefix(codecs.BOM_UTF8)
        if not content:
            return None
        return fast_json.loads_any(content)

    @property
    def data(self) -> Any:
        """The same; None = it is no JSON."""
        try:
            return self.json()
        except (ValueError, RecursionError):
            return None


log = logging.getLogger("nodepool.driver.framework.RestCalls")

#: Time-out of a call that names none, in seconds: for each wait for bytes. The whole answer has twice as long.
DEFAULT_SECONDS: Final = 60.0
#: Attempts of a call that the cloud throttles.
THROTTLED_ATTEMPTS: Final = 6
#: Attempts of a call that only reads, as a rule, and pauses between them.
READ_ATTEMPTS: Final = 3
READ_AGAIN: Final = Backoff(0.5, 4.0)
#: A list has no more pages than these: an answer that leads in a circle must end.
MOST_PAGES: Final = 1000
#: Calls that change nothing in the cloud.
READS: Final = ("GET", "HEAD")
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


class HttpCalls(abc.ABC):
    """How calls are made: to any server, or to one that a file describes. Any thread."""

    @abc.abstractmethod
    def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: Body = None,
        query: Mapping[str, str] | None = None,
        seconds: float = DEFAULT_SECONDS,
    ) -> HttpAnswer:
        """See `PlainHttp.send`."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close the connections that are idle."""


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


class CodedApi(cloud_errors.CodedErrors, RestApi):
    """An API whose errors have codes."""

    def error(self, head: str, answer: HttpAnswer) -> Exception:
        return self.meaning(head, self.errors_in(answer.data), answer.status)


class RestCalls:
    """Thread-safe; all calls block. ``stopped`` ends what waits.

    :param provider: name, for errors.
    :param sizes: of the classes of calls; ``default`` of those that are not named.
    :param ceiling: calls per second, of all classes together; 0 = no limit but those of the classes.
    """

    #: Attempts of a call that only reads.
    read_attempts: ClassVar[int] = READ_ATTEMPTS

    def __init__(
        self,
        provider: str,
        http: HttpCalls,
        api: RestApi,
        login: RestLogin,
        sizes: Mapping[str, BucketSize],
        default: BucketSize,
        ceiling: float = 0.0,
    ) -> None:
        self.provider = provider
        self.stopped = threading.Event()
        self._http = http
        self._api = api
        self._login = login
        self._classes = RateClasses(sizes, default, self._sleep)
        self._ceiling = RateLimiter(provider, ceiling, self._sleep)

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

        def send(login: Mapping[str, str]) -> HttpAnswer:
            started, status = monotonic(), "no answer"
            try:
                answer = self._http.send(method, url, {**given, **login}, content, query, seconds or DEFAULT_SECONDS)
                status = str(answer.status)
                return answer
            except NoAnswer as error:
                raise cloud_errors.CloudAway(f"{self._head(what)}: {error}", maybe_done=error.maybe_done) from error
            finally:
                # Without the query: it may hold a signature.
                place, took = url.partition("?")[0], monotonic() - started
                log.debug("Provider %s: %s %s: %s in %.3f s", self.provider, method, place, status, took)

        attempts = self.read_attempts if method in READS else 1
        for attempt in range(1, attempts + 1):
            try:
                answer = self._send(kind, what, send, permit, again)
                if answer.status in _OF_PROXIES and not (method == "PUT" and answer.status in _OF_UPLOADS):
                    self._check_no_page(answer, what, method)
                if answer.status >= 400:
                    raise self._api.error(self._head(what), answer)
                return RestAnswer(answer.status, self._data(answer, what), answer.headers)
            except cloud_errors.CloudAway as error:
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
            shown = cloud_errors.one_line(str(data)[:_SHOWN])
            text = f"{self._head(what)}: the answer cannot be understood ({type(error).__name__}: {error}): {shown}"
            raise cloud_errors.CloudAway(text) from error

    def pages(
        self, what: str, ask: Callable[[Any], Any], read: Callable[[Any], tuple[Sequence[T], Any]]
    ) -> Iterator[T]:
        """The entries of a list, over all its pages; each page is a call. A page may be empty and not the last one.

        :param what: for errors, as in `call`.
        :param ask: gives the page that begins somewhere; None = the first one.
        :param read: entries of a page, and where the next one begins; nothing = it is the last one.
        :raises CloudAway: an answer is none of that kind, or the list does not end.
        """
        start = None
        for _ in range(MOST_PAGES):
            entries, start = self.read(what, read, ask(start))
            yield from entries
            if not start:
                return
        raise cloud_errors.CloudAway(f"{self._head(what)}: the list does not end")

    def pause(self, seconds: float) -> None:
        """Wait; raises CloudAway when the provider is stopped."""
        if seconds > 0:
            self._sleep(seconds)

    # -- inside --

    def _send(
        self,
        kind: str,
        what: str,
        send: Callable[[Mapping[str, str]], HttpAnswer],
        permit: Callable[[], None],
        again: bool,
    ) -> HttpAnswer:
        """One call with an answer of any status but those of throttling and of an old login.

        :param send: makes it, with a login. ``again``: it can be made again.
        """
        renewed = False
        for attempt in range(1, THROTTLED_ATTEMPTS + 1):
            turn = self._turn(kind, what)
            login = self._login.headers()
            permit()
            answer = send(login)
            throttled = self._api.throttled(answer)
            if throttled or cloud_errors.asks_for_a_pause(answer.status, answer.headers):
                pause = turn.throttled(cloud_errors.retry_after(answer.headers))
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
            elif (alone := self._api.seconds_left_alone(kind, answer)) is not None:
                turn.throttled(alone)
            else:
                turn.worked()
            return answer
        return answer

    def _data(self, answer: HttpAnswer, what: str) -> Any:
        if "json" not in answer.headers.get("Content-Type", "json"):
            # Of an object store, for example.
            return answer.content
        try:
            return answer.json()
        except (ValueError, RecursionError):
            text = f"{self._head(what)}: the answer is not JSON but {_shown(answer)!r}; {PROXY}"
            raise cloud_errors.CloudAway(text) from None

    def _check_no_page(self, answer: HttpAnswer, what: str, method: str) -> None:
        """:raises CloudAway: not the cloud answers, but a proxy with a page. A read is sent again."""
        if is_page(answer):
            text = f"{self._head(what)}: the answer {answer.status} is not the cloud's but {_shown(answer)!r}; {PROXY}"
            kind = cloud_errors.NotFoundByProxy if answer.status == _NOT_FOUND else cloud_errors.CloudAway
            raise kind(text, maybe_done=method in READS, code=str(answer.status))

    def _head(self, what: str) -> str:
        return f"Provider {self.provider}: {what} failed"

    def _turn(self, kind: str, what: str) -> Call:
        if self.stopped.is_set():
            raise cloud_errors.CloudAway(f"{self._head(what)}: the provider was stopped", maybe_done=False)
        # First: a turn of the class is void when the cloud throttles the class meanwhile.
        self._ceiling.wait()
        return self._classes.wait(kind)

    def _sleep(self, seconds: float) -> None:
        if self.stopped.wait(seconds):
            raise cloud_errors.CloudAway(f"Provider {self.provider}: the provider was stopped", maybe_done=False)


def listed(data: Any) -> list[Any]:
    """The same, which must be a list: anything else must not pass for one without entries. Raises TypeError."""
    if not isinstance(data, list):
        raise TypeError("it is no list")
    return data


def is_page(answer: HttpAnswer) -> bool:
    """Is an answer a web page, and so that of a proxy?"""
    return answer.content[:100].lstrip().lower().startswith((b"<!doctype html", b"<html"))


def _shown(answer: HttpAnswer) -> str:
    """The beginning of an answer."""
    return cloud_errors.one_line(answer.content[:400].decode("utf-8", "replace"))[:_SHOWN]


# `TokenLogin`: the bearer token of one provider, renewed before it ends; and how metadata services are asked.

token_login_log = logging.getLogger("nodepool.driver.framework.TokenLogin")

#: A token is renewed so long before it ends, in seconds, or at half its life if that is later.
RENEW_SECONDS: Final = 300.0
#: After a refusal no one asks again for so long: an account is locked for less.
REFUSED_SECONDS: Final = 10.0
#: Where a machine or a container asks for its own identity. The addresses are those of all clouds, and of Google in
#: IPv6 (GCE_METADATA_HOST in GoogleCloudPlatform/k8s-config-connector); of EC2 in IPv6; of ECS; of EKS; then the names
#: of Google and of IBM.
_METADATA_HOSTS: Final = (
    *("169.254.169.254", "fd20:ce::254", "fd00:ec2::254", "169.254.170.2", "169.254.170.23", "fd00:ec2::23"),
    *("metadata.google.internal", "api.metadata.cloud.ibm.com"),
)
#: Variables by which google-auth and botocore find them elsewhere: a host, or an address.
_METADATA_VARIABLES: Final = (
    *("GCE_METADATA_HOST", "GCE_METADATA_ROOT", "GCE_METADATA_IP", "AWS_EC2_METADATA_SERVICE_ENDPOINT"),
)
#: Statuses by which a metadata service says that it is not ready yet, or that the identity is not.
_NOT_READY: Final = (404, 410, 429)
#: What an operator reads then.
NOT_READY: Final = "the metadata service is asked again; if this lasts, assign an identity to this machine"


def keep_metadata_direct() -> None:
    """Keep calls of metadata services away from the proxies of the environment, whichever library makes them.

    A proxy would answer for itself: with an error, or with the identity of another machine. requests, urllib and
    botocore read ``no_proxy``, which gets the addresses. Without a proxy the environment stays as it is.
    """
    proxies = urllib.request.getproxies_environment()
    present = proxies.pop("no", "")
    if not proxies or present.strip() == "*":
        return
    known = {name.strip() for name in present.split(",")}
    # requests compares a host without brackets, urllib and botocore one with them.
    hosts = [form for host in _metadata_hosts() for form in ((host, f"[{host}]") if ":" in host else (host,))]
    if missing := [host for host in hosts if host not in known]:
        os.environ["no_proxy"] = ",".join(filter(None, [present, *missing]))


def _metadata_hosts() -> Iterator[str]:
    yield from _METADATA_HOSTS
    for name in _METADATA_VARIABLES:
        text = os.environ.get(name, "")
        host = urllib.parse.urlsplit(text if "://" in text else f"//{text}").hostname
        if host:
            yield host


def is_metadata(url: str) -> bool:
    """Is an address that of a metadata service?"""
    return urllib.parse.urlsplit(url).hostname in set(_metadata_hosts())


def is_away(answer: HttpAnswer, *, metadata: bool) -> bool:
    """Does an answer to a login say nothing about the credentials? Then the login is tried again.

    :param metadata: a metadata service answered.
    """
    status = answer.status
    return status == 429 or status >= 500 or is_page(answer) or (metadata and status in _NOT_READY)


def login_error(text: str, answer: HttpAnswer, code: str, remedy: str, *, metadata: bool) -> cloud_errors.CloudAway:
    """The error for an answer to a login.

    :param text: whose login failed, and what the answer says.
    :param remedy: what corrects the credentials, such as ``correct credentials-file``.
    :param metadata: a metadata service answered.
    """
    if not is_away(answer, metadata=metadata):
        return cloud_errors.LoginRefused(f"{text}; {remedy}", code)
    advice = PROXY if is_page(answer) else NOT_READY if metadata else ""
    return cloud_errors.CloudAway("; ".join(filter(None, (text, advice))), maybe_done=False, code=code)


def text_of_file(path: str | os.PathLike[str], key: str) -> str:
    """What is in a file with credentials; blocks. Raises LoginRefused.

    :param key: of the configuration, which names the file.
    """
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise cloud_errors.LoginRefused(f"{path} cannot be read: {why}; correct {key} or the file's mode") from None


def json_of_file(path: str, key: str, written_by: str) -> dict[str, Any]:
    """The same of a file that is a JSON object.

    :param written_by: a program that writes such files.
    """
    try:
        data = json.loads(text_of_file(path, key))
    except (ValueError, RecursionError):
        raise cloud_errors.LoginRefused(f"{path} is not JSON; write it with {written_by}") from None
    if not isinstance(data, dict):
        raise cloud_errors.LoginRefused(f"{path} is not a JSON object; write it with {written_by}")
    return data


def address_of(text: object, name: str, source: str) -> str:
    """An address that credentials name, without a slash at its end; "" = none. Raises LoginRefused."""
    parts = urllib.parse.urlsplit(text) if isinstance(text, str) else None
    if text and (parts is None or parts.scheme not in ("http", "https") or not parts.hostname):
        raise cloud_errors.LoginRefused(f"{name} in {source} is no address; correct it")
    return str(text or "").rstrip("/")


class TokenLogin(abc.ABC):
    """A `nodepool.driver.framework.http.rest_calls.RestLogin`; a driver says where its cloud's tokens come from.

    While no new token can be had, the present one is used on as long as it is valid. Thread-safe: ``_lock`` guards all;
    ``_asking`` is held while a token is asked for. Only those wait for it who have no valid token.

    :param provider: its name, for errors.
    """

    def __init__(self, provider: str) -> None:
        keep_metadata_direct()
        self.provider = provider
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._token: str | None = None
        self._renew_at = float("-inf")
        self._ends_at = float("-inf")
        self._refused: cloud_errors.LoginRefused | None = None
        self._refused_at = float("-inf")
        self._away: cloud_errors.CloudAway | None = None
        #: When the latest call ended that had no answer.
        self._away_at = float("-inf")

    @abc.abstractmethod
    def ask(self) -> tuple[str, float]:
        """A new token, and for how many seconds it is valid. Blocks; one thread at a time.

        :raises CloudAway: there was no answer.
        :raises LoginRefused: the credentials are not valid, or there are none.
        """

    def error_in(self, data: Any) -> tuple[str, str]:
        """Code and message of an answer that refuses a token; as OAuth has it, RFC 6749, 5.2."""
        found = data if isinstance(data, dict) else {}
        return str(found.get("error") or ""), str(found.get("error_description") or "")

    def exchange(self, http: HttpCalls, remedy: str, *call: Any, metadata: bool) -> dict[str, Any]:
        """Make a call for a token; what is in its answer. Blocks. Raises as `ask`.

        :param remedy: what corrects the credentials.
        :param call: of `HttpCalls.send`.
        :param metadata: a metadata service answers it.
        """

        head = f"Provider {self.provider}: login failed"
        try:
            answer = http.send(*call)
        except NoAnswer as error:
            raise cloud_errors.CloudAway(f"{head}: {error}", maybe_done=False) from error
        data = answer.data
        if answer.status in (200, 201):
            with contextlib.suppress(KeyError, TypeError, ValueError):
                return {**data, "access_token": str(data["access_token"]), "expires_in": float(data["expires_in"])}
            raise cloud_errors.CloudAway(
                f"Provider {self.provider}: the answer to the login has no token", maybe_done=False
            )
        code, message = self.error_in(data)
        code = code or str(answer.status)
        text = f"{head}: {code}: {cloud_errors.one_line(message or f'status {answer.status}')}"
        raise login_error(text, answer, code, remedy, metadata=metadata)

    def headers(self) -> Mapping[str, str]:
        """See `RestLogin`."""
        with self._lock:
            now, present = monotonic(), self._as_headers()
            if now < self._renew_at:
                return present
            valid = now < self._ends_at
        if not self._asking.acquire(blocking=not valid):
            return present
        try:
            return self._renewed(now)
        finally:
            self._asking.release()

    def refused(self, headers: Mapping[str, str]) -> None:
        """See `RestLogin`. Of many calls with the same token only the first one makes it be renewed."""
        with self._lock:
            if headers == self._as_headers():
                self._renew_at = self._ends_at = float("-inf")

    def _as_headers(self) -> dict[str, str]:
        """With the lock."""
        return {"Authorization": f"Bearer {self._token}"}

    def _renewed(self, since: float) -> Mapping[str, str]:
        """Only one thread at a time.

        :param since: when the caller began to wait. Of those who waited for a call without an answer no one makes
            another one: each would take as long.
        """
        with self._lock:
            now = monotonic()
            valid = now < self._ends_at
            if now < self._renew_at:
                # Another thread was quicker.
                return self._as_headers()
            if not valid and self._refused is not None and now < self._refused_at + REFUSED_SECONDS:
                raise cloud_errors.LoginRefused(str(self._refused), self._refused.code)
            if not valid and self._away is not None and since < self._away_at:
                raise cloud_errors.CloudAway(str(self._away), maybe_done=False, code=self._away.code)
        try:
            token, life = self.ask()
        except (cloud_errors.LoginRefused, cloud_errors.CloudAway) as error:
            with self._lock:
                if isinstance(error, cloud_errors.LoginRefused):
                    self._refused, self._refused_at = error, now
                else:
                    self._away, self._away_at = error, monotonic()
                if not valid:
                    raise
                self._renew_at = min(self._ends_at, now + REFUSED_SECONDS)
            token_login_log.warning("%s; the present token is used on", error)
        else:
            with self._lock:
                self._token, self._refused = token, None
                self._ends_at = now + life
                self._renew_at = now + max(life - RENEW_SECONDS, life / 2)
            token_login_log.debug("Provider %s: a token that is valid for %d s", self.provider, life)
        with self._lock:
            return self._as_headers()

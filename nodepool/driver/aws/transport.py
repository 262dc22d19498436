# SPDX-License-Identifier: Apache-2.0
"""`AwsTransport`: one call to one service of AWS: credentials, pace, and errors that can be told apart.

botocore finds the credentials, signs, and knows the endpoints. It does not repeat calls: what is throttled waits here,
as a class (AW-15), and what got no answer is the business of who called.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from nodepool.clock import monotonic
from nodepool.driver.aws.errors import THROTTLED, meaning
from nodepool.driver.framework.cloud_errors import CloudAway, CloudRefused, CloudSetup, one_line
from nodepool.driver.framework.http.rest_calls import REFUSED_SECONDS, keep_metadata_direct
from nodepool.driver.framework.rate import BucketSize, Call, RateClasses

log = logging.getLogger("nodepool.driver.aws.transport")

#: Attempts of a call that AWS puts off.
THROTTLED_ATTEMPTS: Final = 6
#: A list has no more pages than these: an answer that leads in a circle must end.
MOST_PAGES: Final = 1000
#: Arguments for the next page of most lists -> where a page has them.
NEXT_TOKEN: Final = {"NextToken": "NextToken"}
CONNECT_SECONDS: Final = 10
READ_SECONDS: Final = 45
#: botocore keeps 10 by itself, which is less than the threads of a provider.
CONNECTIONS: Final = 32

#: Classes of calls as EC2 counts them, and what it takes of each at once.
READ: Final = "read"
RUN: Final = "run"
TERMINATE: Final = "terminate"
TAG: Final = "tag"
CHANGE: Final = "change"
QUOTAS: Final = "quotas"
STORE: Final = "store"
_BURSTS: Final = {RUN: 5, TERMINATE: 100, TAG: 100, CHANGE: 50, QUOTAS: 5, READ: 100}
#: Only this part of them is used: calls that were sent apart may arrive together, and one that AWS puts off costs more
#: than it gains.
_BURST_PART: Final = 0.9
#: How much faster than calls that make instances AWS lets those of a class come in the long run: 2 a second of those,
#: 5 that terminate or change something else, 10 that set tags, 20 that read.
_SHARES: Final = {RUN: 1.0, TERMINATE: 2.5, TAG: 5.0, CHANGE: 2.5, QUOTAS: 1.0, READ: 10.0}

#: Exceptions of botocore for calls that never left this machine, and for credentials that are not there.
_NOT_SENT: Final = ("EndpointConnectionError", "ConnectTimeoutError", "ProxyConnectionError")
_REACH: Final = "correct region-name or the endpoint, or let this machine reach it: network, firewall, proxy"
_NO_LOGIN: Final = ("Credential", "SSO", "Token", "Login", "ProfileNotFound")
#: botocore writes tokens of sessions to its log at DEBUG.
_TALKATIVE: Final = ("botocore", "boto3")


def class_sizes(rate: float) -> dict[str, BucketSize]:
    """Buckets of the classes.

    :param rate: calls per second that make instances, in the long run; 0 = no limit.
    """
    sizes = {kind: BucketSize(_BURST_PART * burst, _SHARES[kind] * rate) for kind, burst in _BURSTS.items()}
    # Data of images are limited by the network.
    return {**sizes, STORE: BucketSize(1, 0)}


class AwsTransport:
    """Calls of one provider. Thread-safe; all calls block. Making it imports botocore, and asks nobody.

    ``_lock`` is held while a client is made: sessions are not thread-safe, and the first one may ask the machine for
    its credentials. A client that is there is used without it.

    :param provider: name, for errors.
    :param profile: of boto's files; None = boto chooses.
    :param rate: changing calls per second.
    :param make_client: for tests: makes the client of a service.
    """

    def __init__(
        self,
        provider: str,
        region: str,
        profile: str | None,
        rate: float,
        make_client: Callable[[str], Any] | None = None,
    ) -> None:
        self.provider = provider
        self.region = region
        self._profile = profile
        self._make_client = make_client or self._client_of_botocore
        self._classes = RateClasses(class_sizes(rate), BucketSize(1, rate), sleep=self.sleep)
        self.stopped = threading.Event()
        self._lock = threading.Lock()
        self._session: Any = None
        self._clients: dict[str, Any] = {}
        #: Until when no credentials are looked for again. ``_lock`` guards it.
        self._without_login_until = float("-inf")
        if make_client is None:
            import botocore.session  # noqa: F401 - a provider whose library is broken shall not start

            keep_metadata_direct()

            for name in _TALKATIVE:
                logger = logging.getLogger(name)
                logger.setLevel(max(logger.level, logging.INFO))

    def close(self) -> None:
        """Calls that wait for their turn end; no new ones begin. Those under way may end."""
        self.stopped.set()
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()

    def call(
        self,
        service: str,
        kind: str,
        operation: str,
        arguments: dict[str, Any] | Callable[[], dict[str, Any]],
        permit: Callable[[], None] = lambda: None,
        turn: Call | None = None,
    ) -> dict[str, Any]:
        """Make one call. One that AWS puts off is made again later.

        :param service: such as ``ec2``.
        :param kind: class of the call.
        :param operation: as AWS names it, such as ``RunInstances``.
        :param arguments: or a function that is asked for them when the turn has come.
        :param permit: asked when the turn has come, each time; raises an error if the call must not be made any more.
        :param turn: for the first attempt, if it has come already: see `wait_turn`.
        :raises CloudRefused: AWS refuses it.
        :raises CloudAway: no answer, or AWS has trouble of its own, or does not accept the credentials.
        """
        given: dict[str, Any] | None = None
        for attempt in range(THROTTLED_ATTEMPTS):
            turn = turn or self.wait_turn(kind, operation)
            permit()
            if given is None:
                given = arguments() if callable(arguments) else arguments
            try:
                answer = self._send(service, operation, given)
            except CloudAway as error:
                if error.code not in THROTTLED:
                    raise
                seconds = turn.throttled(None)
                log.info(
                    "Provider %s: %s is put off by AWS (%s), no calls of its class for %.1f s",
                    *(self.provider, operation, error.code, seconds),
                )
                if attempt + 1 == THROTTLED_ATTEMPTS:
                    raise
                turn = None
                continue
            turn.worked()
            return answer
        raise AssertionError("the last attempt raises")

    def pages(
        self,
        service: str,
        kind: str,
        operation: str,
        arguments: dict[str, Any],
        key: str,
        marks: Mapping[str, str] = NEXT_TOKEN,
    ) -> Iterator[dict[str, Any]]:
        """The entries of a list, over all its pages; each page is a call.

        :param key: of the list in the answers.
        :param marks: arguments for the next page -> where a page has them.
        """
        given = dict(arguments)
        for _ in range(MOST_PAGES):
            answer = self.call(service, kind, operation, given)
            yield from answer.get(key) or ()
            following = {name: answer[told] for name, told in marks.items() if answer.get(told)}
            if not answer.get("IsTruncated", bool(following)):
                return
            given |= following
        raise CloudAway(f"Provider {self.provider}: {operation} failed: the list does not end")

    def wait_turn(self, kind: str, operation: str) -> Call:
        """Block until a call of a class may begin; give what is returned to `call`.

        :raises CloudAway: the provider was stopped.
        """
        if self.stopped.is_set():
            raise self._stopped(operation)
        return self._classes.wait(kind)

    @contextlib.contextmanager
    def translated(self, operation: str) -> Iterator[None]:
        """Errors of botocore inside become those of `nodepool.driver.aws.errors`."""
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        head = f"Provider {self.provider}: {operation} failed"
        try:
            yield
        except ClientError as error:
            told = error.response.get("Error") or {}
            status = (error.response.get("ResponseMetadata") or {}).get("HTTPStatusCode") or 0
            raise meaning(head, str(told.get("Code", "")), str(told.get("Message", "")), status) from error
        except BotoCoreError as error:
            raise self._translated(head, error) from error
        except (OSError, ResponseParserError) as error:
            raise CloudAway(f"{head}: {type(error).__name__}: {one_line(str(error))}") from error
        except ValueError as error:
            # What botocore makes of an address that is none.
            if not str(error).startswith("Invalid endpoint"):
                raise
            told = f"{head}: {one_line(str(error))}; correct AWS_ENDPOINT_URL, or endpoint_url of the profile"
            raise CloudAway(told, maybe_done=False) from error

    def sleep(self, seconds: float) -> None:
        """Block for some seconds.

        :raises CloudAway: the provider was stopped.
        """
        if self.stopped.wait(seconds):
            raise self._stopped("a call")

    # -- inside --

    def _send(self, service: str, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        from botocore import xform_name

        started = monotonic()
        try:
            with self.translated(operation):
                # Of botocore's clients: ``run_instances`` for ``RunInstances``.
                answer: dict[str, Any] = getattr(self._client(service), xform_name(operation))(**arguments)
        finally:
            log.debug("Provider %s: %s %s in %.3f s", self.provider, service, operation, monotonic() - started)
        return answer

    def _translated(self, head: str, error: Exception) -> CloudRefused | CloudAway:
        kind = type(error).__name__
        text = f"{head}: {one_line(str(error)) or kind}"
        if kind in ("ParamValidationError", "MissingParametersError"):
            return CloudSetup(f"{text}; correct it in the configuration", code=kind)
        if kind.startswith("NoRegion") or "InvalidRegion" in kind:
            return CloudAway(f"{text}; correct region-name", maybe_done=False, code=kind)
        if any(word in kind for word in _NO_LOGIN):
            advice = "check the credentials: the environment, ~/.aws of the daemon's user, or the role of the machine"
            return CloudAway(f"{text}; {advice}", maybe_done=False, code=kind)
        if kind in _NOT_SENT:
            return CloudAway(f"{text}; {_REACH}", maybe_done=False, code=kind)
        return CloudAway(text, code=kind)

    def _client(self, service: str) -> Any:
        client = self._clients.get(service)
        if client is not None:
            return client
        with self._lock:
            client = self._clients.get(service)
            if client is None:
                if self.stopped.is_set():
                    raise self._stopped(f"a call of {service}")
                client = self._clients[service] = self._make_client(service)
            return client

    def _client_of_botocore(self, service: str) -> Any:
        """It sends each call once: what is repeated is said here. Called with the lock."""
        import botocore.session
        from botocore.config import Config

        if self._session is None:
            from nodepool.driver.aws.answers import AnswerParsers

            self._session = botocore.session.Session(profile=self._profile)
            self._session.register_component("response_parser_factory", AnswerParsers())
        self._check_login()
        config = Config(
            region_name=self.region,
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            max_pool_connections=CONNECTIONS,
            retries={"mode": "standard", "total_max_attempts": 1},
        )
        return self._session.create_client(service, region_name=self.region, config=config)

    def _check_login(self) -> None:
        """Are there credentials? A client that is made without any never gets some. Called with the lock.

        Raises NoCredentialsError: the machine may have no role yet, or its metadata service is not ready.
        """
        from botocore.exceptions import NoCredentialsError

        if monotonic() < self._without_login_until:
            raise NoCredentialsError
        if self._session.get_credentials() is None:
            self._without_login_until = monotonic() + REFUSED_SECONDS
            raise NoCredentialsError

    def _stopped(self, operation: str) -> CloudAway:
        return CloudAway(f"Provider {self.provider}: {operation} failed: the provider was stopped", maybe_done=False)

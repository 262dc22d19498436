# SPDX-License-Identifier: Apache-2.0
"""All calls of the Compute Engine API that the driver makes, https://cloud.google.com/compute/docs/reference.

First the calls, then zones that do not answer, then the login with google-auth.
"""

from __future__ import annotations

import calendar
import importlib
import logging
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from nodepool.clock import monotonic, wall_time
from nodepool.driver.framework.cloud_errors import CloudAway, CloudRefused, LoginRefused, one_line
from nodepool.driver.framework.http.rest_calls import (
    NOT_READY,
    RestAnswer,
    RestCalls,
    RestLogin,
    TokenLogin,
    is_away,
    is_metadata,
    json_of_file,
)
from nodepool.driver.framework.rate import BucketSize
from nodepool.driver.gce import types as t
from nodepool.driver.gce.config import GceProviderConfig
from nodepool.driver.gce.types import THROTTLED, GceApi, LabelReader
from nodepool.plan.retries import Backoff, CircuitBreaker

if TYPE_CHECKING:
    from nodepool.driver.framework.http.plain_http import PlainHttp

T = TypeVar("T")

#: Groups of calls as Google counts them, each so often a minute for a project and a region:
#: https://cloud.google.com/compute/api-quota. Calls of images are counted on their own.
READ: Final = "read"
LIST: Final = "list"
OPERATION: Final = "operation"
WRITE: Final = "write"
IMAGE: Final = "image"
GROUPS: Final = (READ, LIST, OPERATION, WRITE, IMAGE)
CALLS_A_MINUTE: Final = 1500
#: Entries of a page; the most that Google allows.
PAGE: Final = 500
CALL_SECONDS: Final = 45.0
#: The same of operations, for which lists of instances wait.
OPERATION_SECONDS: Final = 15.0


def group_sizes(rate: float) -> dict[str, BucketSize]:
    """Buckets of the groups: in no minute are there more calls than Google allows.

    :param rate: calls a second in the long run; 0 = no limit.
    """
    burst = max(1.0, CALLS_A_MINUTE - 60 * rate) if rate else 1
    return {group: BucketSize(burst, rate) for group in GROUPS}


class ComputeEngine:
    """One project. All methods block; any thread may call them. They raise what
    `nodepool.driver.framework.cloud_errors` has. Making it asks no one.
    """

    def __init__(self, config: GceProviderConfig, http: PlainHttp, login: RestLogin, labels: LabelReader) -> None:
        self.zones = tuple(config.zones)
        self.labels = labels
        self._region = config.region
        self._endpoint = config.endpoint
        self.project = f"projects/{quoted(config.project)}"
        sizes = group_sizes(config.rate)
        self.calls = RestCalls(config.name, http, GceApi(), login, sizes, BucketSize(1, 0))
        self.silent_zones = SilentZones(config.name, self.zones)

    def close(self) -> None:
        """Calls that wait for their turn end; no new ones begin."""
        self.calls.close()

    # -- instances --

    def instances(self) -> tuple[list[t.GceRecord], set[str]]:
        """All of the zones; and the zones that did not answer."""
        return self._scoped("instances", t.INSTANCE_FIELDS, "listing instances", self._record)

    def instance(self, zone: str, name: str) -> t.GceRecord:
        """One as it is now; raises CloudNotFound."""
        path = self._zonal(zone, "instances", name)
        return self._get(path, "reading an instance", t.INSTANCE_FIELDS, self._record)

    def metadata_items(self, zone: str, name: str) -> dict[str, str]:
        """Metadata items of an instance; raises CloudNotFound."""
        path = self._zonal(zone, "instances", name)
        fields = "metadata(items(key,value))"
        return self._get(path, "reading the metadata of an instance", fields, _metadata_items)

    def insert(self, zone: str, body: Mapping[str, Any], request_id: str, permit: Callable[[], None]) -> t.Operation:
        """Order an instance; the operation says whether there is one in the end."""
        path = self._zonal(zone, "instances")
        query = {"requestId": request_id}
        what = "creating an instance"
        answer = self._call(WRITE, "POST", path, what, body=body, query=query, permit=permit)
        return self.calls.read(what, t.Operation, answer.data)

    def delete_instance(self, zone: str, name: str) -> None:
        """Order the deletion; raises CloudNotFound if there is none."""
        self._delete(self._zonal(zone, "instances", name), "deleting an instance")

    def console(self, zone: str, name: str) -> str:
        """The latest that an instance wrote to its first serial port; raises CloudNotFound."""
        path = f"{self._zonal(zone, 'instances', name)}/serialPort"
        return self._get(path, "reading the console", "contents", lambda data: str(data.get("contents") or ""))

    # -- operations --

    def operations(self, zone: str, kind: str, what: str) -> Iterator[t.Operation]:
        """Operations of a type in a zone, the newest first; a call for each page that is asked for.

        A list of all zones would have those of one zone after the other, and so not the newest first.

        :param kind: ``operationType``.
        """
        query = {"filter": f'operationType="{kind}"', "orderBy": "creationTimestamp desc"}
        path = self._zonal(zone, "operations")
        return self._list(path, t.OPERATION_FIELDS, what, t.Operation, OPERATION, query)

    def operation(self, zone: str, name: str) -> t.Operation:
        """One operation of a zone; raises CloudNotFound."""
        path = self._zonal(zone, "operations", name)
        return self._get(path, "reading an operation", t.OPERATION_FIELDS, t.Operation, OPERATION)

    # -- what may be left over --

    def disks(self) -> list[t.Leftover]:
        """Disks of the zones that this provider labelled."""
        query = {"filter": self.labels.own_filter}
        return self._scoped("disks", t.DISK_FIELDS, "listing disks", self._leftover, query)[0]

    def delete_disk(self, zone: str, name: str) -> None:
        self._delete(self._zonal(zone, "disks", name), "deleting a disk")

    def addresses(self) -> Iterator[t.Leftover]:
        """Reserved addresses of the region that this provider labelled."""
        query = {"filter": self.labels.own_filter}
        path = f"{self.project}/regions/{quoted(self._region)}/addresses"
        return self._list(path, t.ADDRESS_FIELDS, "listing addresses", self._leftover, LIST, query)

    def delete_address(self, name: str) -> None:
        path = f"{self.project}/regions/{quoted(self._region)}/addresses/{quoted(name)}"
        self._delete(path, "deleting an address")

    # -- what seldom changes --

    def machine_type(self, zone: str, name: str) -> t.MachineType:
        """Raises CloudNotFound."""
        path = self._zonal(zone, "machineTypes", name)
        return self._get(path, "reading a machine type", t.MACHINE_FIELDS, t.MachineType)

    def image_at(self, link: str, what: str = "reading an image") -> t.GceImage:
        """An image by its link, or the part of it from ``projects`` or ``global`` on; raises CloudNotFound."""
        path = link[link.index("projects/") :] if "projects/" in link else f"{self.project}/{link.lstrip('/')}"
        return self._get(path, what, t.IMAGE_FIELDS, self._image)

    def quotas(self) -> dict[str, float]:
        """Limits by name, of the project and of the region. What both have is that of the region."""
        found: dict[str, float] = {}
        for path in (self.project, f"{self.project}/regions/{quoted(self._region)}"):
            found |= self._get(path, "reading the quota", "quotas(metric,limit)", _limits)
        return found

    def exists(self, path: str, what: str) -> None:
        """Raises CloudNotFound if there is nothing at a path.

        :param path: from ``projects`` on, or within the project.
        :param what: for errors.
        """
        whole = path if path.startswith("projects/") else f"{self.project}/{path}"
        self._get(whole, what, "name", dict)

    # -- for images, too --

    def image_named(self, name: str) -> t.GceImage:
        """An image of the project; raises CloudNotFound."""
        return self.image_at(f"global/images/{quoted(name)}")

    def images(self) -> Iterator[t.GceImage]:
        """Images of the project that this provider labelled; each page is a call."""
        path, query = f"{self.project}/global/images", {"filter": self.labels.own_filter}
        return self._list(path, t.IMAGE_FIELDS, "listing images", self._image, LIST, query)

    def operation_of_project(self, name: str, what: str) -> t.Operation:
        """One operation that belongs to no zone; raises CloudNotFound."""
        path = f"{self.project}/global/operations/{quoted(name)}"
        return self._get(path, what, t.OPERATION_FIELDS, t.Operation, OPERATION)

    # -- inside --

    def url(self, path: str) -> str:
        """Address of a path from ``projects`` on."""
        return f"{self._endpoint}/compute/v1/{path}"

    def _zonal(self, zone: str, *parts: str) -> str:
        return "/".join((self.project, "zones", quoted(zone), *map(quoted, parts)))

    def _record(self, data: Any) -> t.GceRecord:
        return t.GceRecord(data, self.labels)

    def _leftover(self, data: Any) -> t.Leftover:
        return t.Leftover(data, self.labels)

    def _image(self, data: Any) -> t.GceImage:
        return t.GceImage(data, self.labels)

    def _get(self, path: str, what: str, fields: str, of: Callable[[Any], T], group: str = READ) -> T:
        return self.calls.read(what, of, self._call(group, "GET", path, what, query={"fields": fields}).data)

    def _delete(self, path: str, what: str) -> None:
        self._call(WRITE, "DELETE", path, what)

    def _call(self, group: str, method: str, path: str, what: str, **more: Any) -> RestAnswer:
        """A call that may be of a zone."""
        seconds = OPERATION_SECONDS if group == OPERATION else CALL_SECONDS
        zone = _zone_of(path)
        if zone is None:
            return self.calls.call(group, method, self.url(path), what, seconds=seconds, **more)
        self.silent_zones.check(zone)
        try:
            answer = self.calls.call(group, method, self.url(path), what, seconds=seconds, **more)
        except CloudAway as error:
            if error.maybe_done and error.code not in THROTTLED:
                self.silent_zones.no_answer(zone)
            raise
        except CloudRefused as error:
            # Without a status it was not Google: the launch did not want the call any more when its turn came.
            if error.status:
                self.silent_zones.answered(zone)
            raise
        self.silent_zones.answered(zone)
        return answer

    def _scoped(
        self, kind: str, fields: str, what: str, of: Callable[[Any], T], query: Mapping[str, str] | None = None
    ) -> tuple[list[T], set[str]]:
        """All entries of the zones, and the zones that did not answer; with several zones by one list of all zones."""
        unreachable: set[str] = set()
        query = query or {}
        if len(self.zones) == 1:
            path, shown = self._zonal(self.zones[0], kind), f"items({fields}),warning/code"
        else:
            path, shown = (
                f"{self.project}/aggregated/{kind}",
                f"items/*/{kind}({fields}),items/*/warning/code,unreachables",
            )
            # Dated versions of the API, from 2026-09-01 on, have no such parameter, and always answer so. No version is
            # named here, and without the parameter one silent zone is an error of the whole list.
            query = {**query, "returnPartialSuccess": "true"}

        def read(page: Mapping[str, Any]) -> list[T]:
            entries, silent = self._of_zones(kind, page)
            unreachable.update(silent.intersection(self.zones))
            return [of(data) for data in entries]

        return list(self._pages(path, shown, what, LIST, query, read)), unreachable

    def _of_zones(self, kind: str, page: Mapping[str, Any]) -> tuple[list[Any], set[str]]:
        """Entries of a page of such a list, and zones that did not answer, maybe of others, too."""
        if len(self.zones) == 1:
            return list(page.get("items") or ()), set(self.zones) if _is_silent(page) else set()
        parts = {t.name_of(scope): part or {} for scope, part in (page.get("items") or {}).items()}
        silent = {t.name_of(scope) for scope in page.get("unreachables") or ()}
        silent |= {zone for zone, part in parts.items() if _is_silent(part)}
        return [entry for zone in self.zones for entry in parts.get(zone, {}).get(kind) or ()], silent

    def _list(
        self, path: str, fields: str, what: str, of: Callable[[Any], T], group: str, query: Mapping[str, str]
    ) -> Iterator[T]:
        def read(page: Mapping[str, Any]) -> list[T]:
            return [of(data) for data in page.get("items") or ()]

        return self._pages(path, f"items({fields})", what, group, query, read)

    def _pages(
        self,
        path: str,
        fields: str,
        what: str,
        group: str,
        query: Mapping[str, str],
        read: Callable[[Mapping[str, Any]], list[T]],
    ) -> Iterator[T]:
        """Each page is a call. :param read: the entries of one."""
        whole = {**query, "maxResults": str(PAGE), "fields": f"{fields},nextPageToken"}

        def ask(token: str | None) -> Any:
            more = {"pageToken": token} if token else {}
            return self._call(group, "GET", path, what, query={**whole, **more}).data

        return self.calls.pages(what, ask, lambda page: (read(page), page.get("nextPageToken")))


def _metadata_items(data: Mapping[str, Any]) -> dict[str, str]:
    items = (data.get("metadata") or {}).get("items") or ()
    return {item["key"]: str(item.get("value") or "") for item in items if item.get("key")}


def _limits(data: Mapping[str, Any]) -> dict[str, float]:
    return {quota["metric"]: float(quota.get("limit") or 0) for quota in data.get("quotas") or ()}


def _is_silent(part: Mapping[str, Any]) -> bool:
    """Does a list, or its part of a scope, say that the scope does not answer?"""
    return (part.get("warning") or {}).get("code") == t.UNREACHABLE


def _zone_of(path: str) -> str | None:
    """The zone of a path; None = it is of none, or of all."""
    _, found, rest = path.partition("/zones/")
    return urllib.parse.unquote(rest.partition("/")[0]) if found else None


def quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="")


# `SilentZones`: zones that do not answer are left alone for a while, so that the others do not wait for them.
#
# A call without an answer takes its thread for up to a minute and a half. Of a provider with several zones those that
# do not answer would soon have all threads. If no zone answers the cloud is away, which is the framework's matter.

log = logging.getLogger("nodepool.driver.gce.client")

#: A zone is silent after so many calls in a row without an answer.
FAILURES: Final = 3
#: From one call that asks whether it answers again to the next one.
PAUSE: Final = Backoff(15.0, 60.0)


class SilentZones:
    """Of one provider. Thread-safe, does not block; ``_lock`` guards the circuit breakers."""

    def __init__(self, provider: str, zones: Iterable[str]) -> None:
        self._provider = provider
        self._lock = threading.Lock()
        #: Of the configuration. Calls may go to others, for what an earlier one has left there.
        self._zones = tuple(zones)
        self._breakers: dict[str, CircuitBreaker] = {}

    def silent(self, zone: str) -> bool:
        """Does it not answer, while another one does?"""
        with self._lock:
            return self._of(zone).is_open and not self._all_silent()

    def check(self, zone: str) -> None:
        """For each call that begins. Of a silent zone one is let through now and then.

        :raises CloudAway: it is silent; nothing was sent.
        """
        with self._lock:
            now, breaker = monotonic(), self._of(zone)
            left = breaker.probe_due(now)
            if left is None or self._all_silent():
                return
            if not left:
                breaker.plan_probe(now)
                return
        text = f"Provider {self._provider}: zone {zone} does not answer; it is asked again in {left:.0f} s"
        raise CloudAway(text, maybe_done=False)

    def answered(self, zone: str) -> None:
        """A call had an answer, of whatever kind."""
        with self._lock:
            again = self._of(zone).worked()
        if again:
            log.info("Provider %s: zone %s answers again", self._provider, zone)

    def no_answer(self, zone: str) -> None:
        """A call had none, or an error of the server."""
        with self._lock:
            new = self._of(zone).failed(monotonic(), "")
        if new:
            log.warning("Provider %s: zone %s does not answer and is left alone", self._provider, zone)

    # -- with the lock --

    def _of(self, zone: str) -> CircuitBreaker:
        return self._breakers.setdefault(zone, CircuitBreaker(FAILURES, 0.0, PAUSE))

    def _all_silent(self) -> bool:
        return all(self._of(zone).is_open for zone in self._zones)


# `GoogleLogin`: access tokens for Google's APIs, through google-auth (GC-1).
#
# Without ``credentials-file`` the credentials are the application default credentials: the file that
# ``GOOGLE_APPLICATION_CREDENTIALS`` names, that of the Google Cloud CLI, or the service account of the machine that
# Nodepool runs on. google-auth is imported when a token is needed.

#: What the token is for. What it allows the roles of the account say.
SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)
#: ``type`` in a file of credentials -> module of google-auth, and what makes credentials of the file. Those that run a
#: program are refused.
_MAKERS: Final = {
    "service_account": ("google.oauth2.service_account", "from_service_account_info"),
    "external_account": ("google.auth.identity_pool", "from_info"),
    "impersonated_service_account": ("google.auth.impersonated_credentials", "from_impersonated_service_account_info"),
    "authorized_user": ("google.oauth2.credentials", "from_authorized_user_info"),
}
_AWS_TOKEN_TYPE: Final = "urn:ietf:params:aws:token-type:aws4_request"
_CALL_SECONDS: Final = 20.0
#: Of a token that does not say when it ends.
_LIFE_SECONDS: Final = 3600.0


class GoogleLogin(TokenLogin):
    """Credentials of one provider.

    :param credentials_file: path; read again for each token, so that it may be replaced. None = the default ones.
    """

    def __init__(self, provider: str, credentials_file: str | None, http: PlainHttp) -> None:
        import google.auth  # noqa: F401 - a provider whose library is broken shall not start

        super().__init__(provider)
        self._credentials_file = credentials_file
        self._http = http

    def ask(self) -> tuple[str, float]:
        from google.auth import exceptions

        head = f"Provider {self.provider}: login failed"
        transport = GoogleTransport(self._http)
        try:
            credentials = self._credentials(transport)
            credentials.refresh(transport)
        except exceptions.DefaultCredentialsError as error:
            advice = transport.advice or "add credentials-file to the provider, or correct it"
            text = f"{head}: {_words(error)}; {advice}"
            if transport.unanswered or transport.away:
                # A metadata server that is away looks like a machine without credentials.
                raise CloudAway(text, maybe_done=False) from None
            raise LoginRefused(text) from None
        except exceptions.GoogleAuthError as error:
            text = f"{head}: {_words(error)}"
            if transport.unanswered or transport.away or error.retryable:
                raise CloudAway("; ".join(filter(None, (text, transport.advice))), maybe_done=False) from None
            raise LoginRefused(f"{text}; correct the credentials") from None
        except (OSError, ValueError) as error:
            raise LoginRefused(f"{head}: {_words(error)}; correct credentials-file") from None
        expiry = credentials.expiry
        life = _LIFE_SECONDS if expiry is None else calendar.timegm(expiry.timetuple()) - wall_time()
        return str(credentials.token), life

    def _credentials(self, transport: GoogleTransport) -> Any:
        import google.auth

        if self._credentials_file:
            return credentials_of(self._credentials_file)
        credentials, _ = google.auth.default(scopes=SCOPES, request=transport)  # type: ignore[arg-type]
        return credentials


def credentials_of(path: str) -> Any:
    """The credentials of a file. Blocks; asks no one.

    :raises LoginRefused: it cannot be read, or is of a type that is not supported.
    :raises ValueError: it is incomplete.
    """
    info = json_of_file(path, "credentials-file", "gcloud iam service-accounts keys create")
    kind = str(info.get("type"))
    if kind not in _MAKERS:
        raise LoginRefused(f"type in {path} is {info.get('type')!r}, not one of {', '.join(_MAKERS)}; use another file")
    if (info.get("credential_source") or {}).get("executable"):
        raise LoginRefused("credential_source.executable is not supported; use a file, a URL or AWS as the source")
    module, make = _MAKERS[kind]
    if info.get("subject_token_type") == _AWS_TOKEN_TYPE:
        module = "google.auth.aws"
    return getattr(importlib.import_module(module).Credentials, make)(info, scopes=SCOPES)


class GoogleTransport:
    """A ``google.auth.transport.Request`` whose answers are bounded. For the calls of one login.

    Results: ``unanswered``, a call had no answer; ``away``, the last answer says nothing about the credentials;
    ``advice`` if it was one of a metadata service.
    """

    def __init__(self, http: PlainHttp) -> None:
        self._http = http
        self.unanswered = False
        self.away = False
        self.advice = ""

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        **_: Any,
    ) -> Any:
        from google.auth import exceptions

        from nodepool.driver.framework.http.plain_http import NoAnswer

        try:
            answer = self._http.send(method, url, headers or {}, body, seconds=timeout or _CALL_SECONDS)
        except NoAnswer as error:
            self.unanswered = True
            raise exceptions.TransportError(str(error)) from error  # type: ignore[no-untyped-call]
        self.unanswered = False
        # The root is asked by google-auth whether this is a machine of Google.
        metadata = is_metadata(url) and urlsplit(url).path not in ("", "/")
        self.away = is_away(answer, metadata=metadata)
        self.advice = NOT_READY if self.away and metadata else ""
        return SimpleNamespace(status=answer.status, headers=answer.headers, data=answer.content)


def _words(error: Exception) -> str:
    """What google-auth says; the first argument, the others are answers of the server, maybe with secrets."""
    return one_line(str(error.args[0] if error.args else error)).rstrip(".")

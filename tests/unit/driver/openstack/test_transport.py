# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.openstack.transport` with a session of written answers."""

from __future__ import annotations

import json
import math
from email.utils import formatdate
from typing import Any

import pytest
import requests
from keystoneauth1 import exceptions

from nodepool.driver.framework.cloud_errors import CloudAway, CloudNotFound, CloudQuota, CloudRefused, LoginRefused
from nodepool.driver.openstack.errors import ServiceAbsent
from nodepool.driver.openstack.transport import BUSY_ATTEMPTS, Transport
from nodepool.exceptions import CloudUnavailableException, LaunchStatusException, NotFound, QuotaException


class Response:
    def __init__(self, status: int, body: Any = b"", **headers: str) -> None:
        self.status_code = status
        self.content = body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = "text/html" if self.content.startswith(b"<") else "application/json"
        self.headers = {"Content-Type": kind, **{key.replace("_", "-"): value for key, value in headers.items()}}

    def json(self) -> Any:
        return json.loads(self.content)


class Client:
    """Answers in turn; the last one again and again. Exceptions are raised."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str, dict[str, Any]]] = []

    def request(self, url: str, method: str, **arguments: Any) -> Any:
        self.asked.append((method, url, arguments))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class FastTransport(Transport):
    """Notes its pauses instead of sleeping; its time passes in them only."""

    def __init__(self, *answers: Any, interval: float = 0) -> None:
        self.client = Client(list(answers))
        self.pauses: list[float] = []
        self.now = 100.0
        super().__init__(
            "cloud-a", object(), interval, make_client=lambda region, service: self.client, clock=lambda: self.now
        )

    def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        super()._sleep(0)

    def get(self, service: str = "compute") -> Any:
        return self.call(service, "GET", "/servers", "listing servers").data


def test_answer() -> None:
    transport = FastTransport(Response(200, {"servers": []}))
    assert transport.call("compute", "POST", "/x", "doing", body={"a": 1}, query={"q": "1"}).data == {"servers": []}
    method, url, arguments = transport.client.asked[0]
    assert (method, url, arguments["json"], arguments["params"]) == ("POST", "/x", {"a": 1}, {"q": "1"})
    assert arguments["raise_exc"] is False
    assert FastTransport(Response(204)).get() == {}


def real_response(body: bytes, kind: str) -> requests.Response:
    response = requests.Response()
    response.status_code, response._content, response.headers["Content-Type"] = 200, body, kind
    response.encoding = requests.utils.get_encoding_from_headers(response.headers)
    return response


@pytest.mark.parametrize(
    ("body", "kind", "read"),
    [
        ('{"name": "grün"}'.encode(), "application/json", {"name": "grün"}),
        ('{"name": "grün"}'.encode("latin-1"), "application/json; charset=latin-1", {"name": "grün"}),
        (b'{"cores": Infinity}', "application/json", {"cores": math.inf}),
        (b'{"ram": 100000000000000000000}', "application/json; charset=UTF-8", {"ram": 10**20}),
        (b'{"name": "\\ud800"}', "application/json", {"name": "\ud800"}),
    ],
)
def test_answers_as_the_standard_library_reads_them(body: bytes, kind: str, read: Any) -> None:
    found = FastTransport(real_response(body, kind)).get()
    assert found == read
    assert repr(found) == repr(read)


@pytest.mark.parametrize(
    ("response", "kind", "text"),
    [
        (Response(404, {"itemNotFound": {"message": "no such server"}}), CloudNotFound, "404 no such server"),
        (Response(400, {"badRequest": {"message": "Invalid key_name provided."}}), CloudRefused, "Invalid key_name"),
        (Response(403, {"forbidden": {"message": "Quota exceeded for cores"}}), CloudQuota, "Quota exceeded"),
        (Response(403, {"forbidden": {"message": "Maximum number of ports exceeded"}}), CloudQuota, "ports"),
        (Response(409, {"NeutronError": {"type": "OverQuota", "message": "Quota exceeded"}}), CloudQuota, "Quota"),
        (Response(403, {"forbidden": {"message": "Policy does not allow"}}), CloudRefused, "Policy"),
        (Response(409, {"NeutronError": "busy"}), CloudRefused, "409 busy"),
        (Response(401, {"error": {"message": "nope"}}), LoginRefused, "clouds.yaml"),
        (Response(500, {"computeFault": {"message": "Unexpected API Error"}}), CloudAway, "500 Unexpected"),
        (Response(502, b"<html><head><title>502 Bad Gateway</title></head>x</html>"), CloudAway, "502 502 Bad Gateway"),
        (Response(503, b"\xff\xfe garbage"), CloudAway, "503"),
        (
            Response(
                413, b"<html><title>413 Too Large</title><h1>413 Too Large</h1> over the\nquota.<br /><br />\n\n</html>"
            ),
            CloudRefused,
            "413 over the quota.",
        ),
        (
            Response(403, b"<html><h1>403 Forbidden</h1>Denied.<br/><br/> It is protected</html>"),
            CloudRefused,
            "403 Denied. It is protected",
        ),
        (Response(404, b"<html><h1>404 Gone</h1><br/><br/></html>"), CloudNotFound, "404 404 Gone"),
        (Response(200, b"<html><h1>Please log in</h1></html>"), CloudAway, "not JSON but 'Please log in'"),
    ],
)
def test_errors(response: Response, kind: type[Exception], text: str) -> None:
    """reference/driver 13: each kind of trouble has its class; the text names the provider and says what was done."""
    with pytest.raises(kind) as caught:
        FastTransport(response).get()
    assert type(caught.value) is kind
    assert str(caught.value).startswith("Provider cloud-a: listing servers failed: ")
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_classes_are_understood_by_the_framework() -> None:
    """reference/driver 13: a quota error aborts, a missing thing is as good as deleted, a cloud may be away."""
    assert issubclass(CloudQuota, QuotaException)
    assert CloudQuota.statsd_key == "error.quota"
    assert issubclass(CloudNotFound, NotFound)
    assert issubclass(CloudAway, CloudUnavailableException)
    assert issubclass(LoginRefused, CloudUnavailableException)


REFUSED = (
    "Could not find versioned identity endpoints when attempting to authenticate. Please check that your auth_url is "
    "correct. Unable to establish connection to https://cloud:5000/v3: HTTPSConnectionPool(host='cloud', port=5000): "
    "Max retries exceeded with url: /v3 (Caused by NewConnectionError(\"HTTPSConnection(host='cloud', port=5000): "
    'Failed to establish a new connection: [Errno 111] Connection refused"))'
)


@pytest.mark.parametrize(
    ("error", "maybe_done"),
    [
        (exceptions.ConnectTimeout("Request to http://x timed out"), True),
        (exceptions.ConnectFailure("Unable: ('Connection aborted.', RemoteDisconnected())"), True),
        (exceptions.ConnectFailure("Unable: NewConnectionError: [Errno 111] Connection refused"), False),
        (exceptions.UnknownConnectionError("odd", Exception()), True),
        (exceptions.DiscoveryFailure("no versions"), False),
        (exceptions.GatewayTimeout("504"), True),
    ],
)
def test_no_answer(error: Exception, maybe_done: bool) -> None:
    """A call whose answer was lost may have had its effect; one that was never sent has none."""
    with pytest.raises(CloudAway) as caught:
        FastTransport(error).get()
    assert caught.value.maybe_done is maybe_done


@pytest.mark.parametrize("kind", [exceptions.ConnectFailure, exceptions.DiscoveryFailure])
def test_cause_of_no_answer_is_short(kind: type[Exception]) -> None:
    """J-7: address, cause and remedy, instead of all that three libraries say."""
    with pytest.raises(CloudAway) as caught:
        FastTransport(kind(REFUSED)).get()
    assert str(caught.value).endswith(
        "failed: no answer from https://cloud:5000/v3: connection refused; "
        "check auth_url in clouds.yaml and the catalog, and whether the service runs"
    )
    assert not caught.value.maybe_done


def test_login_in_an_address_is_not_told() -> None:
    """A proxy before the cloud may ask for one, see security.rst; other addresses stay as they are."""
    error = exceptions.ConnectTimeout("Request to https://proxy:pass-W0RD@k.example.org/v3?user=a@b timed out")
    with pytest.raises(CloudAway, match=r"no answer from https://k.example.org/v3\?user=a@b: timed out;"):
        FastTransport(error).get()


def test_expired_password() -> None:
    """Bad input: the remedy is told."""
    with pytest.raises(LoginRefused, match=r"password \(is it expired\?\)"):
        FastTransport(exceptions.Unauthorized("The request you have made requires authentication.")).get()


@pytest.mark.parametrize("status", [400, 403, 404])
def test_refused_login(status: int) -> None:
    """Bad input: whatever Keystone does not like, it is about the cloud, not about a label."""
    error = exceptions.HttpError("Expecting to find domain in user", http_status=status)
    with pytest.raises(LoginRefused, match=r"refuses the login: .*domain in user.*; check auth_url, user, password"):
        FastTransport(error).get()


@pytest.mark.parametrize("error", [exceptions.EmptyCatalog("empty"), exceptions.EndpointNotFound("none in north")])
def test_a_cloud_without_servers(error: Exception) -> None:
    """Bad input: a wrong region or a login without a project: the whole cloud is of no use."""
    with pytest.raises(CloudAway, match=r"no compute service for us: .*; check region-name, and") as caught:
        FastTransport(error).get()
    assert not caught.value.maybe_done
    with pytest.raises(ServiceAbsent):
        FastTransport(error).call("image", "GET", "/images", "listing images")


def test_bugs_are_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        FastTransport(ZeroDivisionError()).get()


@pytest.mark.parametrize(("header", "least"), [("7", 7), ("junk", 1), (None, 1), ("date", 5), ("100000", 60)])
def test_retry_after(header: str | None, least: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """429: the call is made again, when the cloud wants it to."""
    now = 1_700_000_000.0
    monkeypatch.setattr("nodepool.driver.framework.cloud_errors.wall_time", lambda: now)
    if header == "date":
        header = formatdate(now + 5, usegmt=True)
    busy = Response(429, {}, **({"Retry_After": header} if header else {}))
    transport = FastTransport(busy, Response(200, {"a": 1}))
    assert transport.get() == {"a": 1}
    assert len(transport.client.asked) == 2
    assert least <= transport.pauses[0] <= max(least, 5) + 0.2


def test_busy_for_ever() -> None:
    """In the end it is an error, and the call did nothing."""
    transport = FastTransport(Response(429, {}))
    with pytest.raises(CloudAway) as caught:
        transport.get()
    assert caught.value.maybe_done is False
    assert len(transport.client.asked) == BUSY_ATTEMPTS


def test_not_permitted_any_more() -> None:
    """What was put off is not sent if it is not wanted any more when its turn comes again."""
    transport = FastTransport(Response(429, {}), Response(200, {}))
    pauses: list[int] = []

    def permit() -> None:
        pauses.append(len(transport.pauses))
        if transport.pauses:
            raise LaunchStatusException("not wanted any more")

    with pytest.raises(LaunchStatusException, match="not wanted"):
        transport.call("compute", "POST", "/servers", "creating a server", permit=permit)
    assert (pauses, len(transport.client.asked)) == ([0, 1], 1)


def test_rate() -> None:
    """reference/configuration 7, O-14: rate is the number of seconds between calls to one service."""
    transport = FastTransport(Response(200, {}), interval=2.5)
    transport.get()
    transport.get()
    assert transport.pauses == [2.5]
    transport.get("network")
    assert transport.pauses == [2.5]


def test_one_service_is_throttled() -> None:
    """O-14: the others are not; its next calls are slower than before, all together."""
    transport = FastTransport(Response(429, {}, Retry_After="7"), Response(200, {}), interval=0.1)
    transport.get("network")
    assert 7 <= transport.pauses[0] <= 7.2
    transport.get("compute")
    assert len(transport.pauses) == 1
    transport.get("network")
    transport.get("network")
    assert all(pause > 0.1 for pause in transport.pauses[1:])
    assert len(transport.pauses) == 3


def test_unavailable_service_that_names_a_time() -> None:
    """503 with Retry-After: the call may have been carried out, so it is not repeated; later ones wait as long."""
    transport = FastTransport(Response(503, {}, Retry_After="7"), Response(200, {}))
    with pytest.raises(CloudAway) as caught:
        transport.get()
    assert caught.value.maybe_done
    assert transport.pauses == []
    transport.get()
    assert 7 <= transport.pauses[0] <= 7.2


def test_many_calls_without_a_rate() -> None:
    """None waits; after a 429 they come half as often as before."""
    transport = FastTransport(Response(200, {}))
    for _ in range(100):
        transport.now += 0.01
        transport.get()
    assert transport.pauses == []
    transport.client.answers[:] = [Response(429, {}, Retry_After="1"), Response(200, {})]
    transport.get()
    begun = transport.now
    for _ in range(50):
        transport.get()
    assert 50 / (transport.now - begun) <= 0.6 * 100 / 1.0


def test_absent_service() -> None:
    """A service that is not in the catalog is looked for once in a while, not at each call."""
    looked: list[str] = []

    def make(region: Any, service: str) -> Any:
        looked.append(service)
        raise ServiceAbsent("the cloud has none")

    transport = Transport("cloud-a", object(), 0, make_client=make)
    assert not transport.has("block-storage")
    assert not transport.has("block-storage")
    assert looked == ["block-storage"]
    with pytest.raises(ServiceAbsent, match="has none"):
        transport.call("block-storage", "GET", "/volumes", "listing volumes")


def test_new_settings_of_clouds_yaml() -> None:
    """A cloud that cannot be used any more, because its password was changed, can be used with the new one."""
    clients = {"old": Client([exceptions.Unauthorized("no")]), "new": Client([Response(200, {"servers": []})])}
    regions = iter([None, "new"])
    transport = Transport(
        "cloud-a", "old", 0, make_client=lambda region, service: clients[region], renew=lambda region: next(regions)
    )
    for _ in range(2):
        with pytest.raises(LoginRefused):
            transport.call("compute", "GET", "/servers", "listing servers")
    assert transport.call("compute", "GET", "/servers", "listing servers").data == {"servers": []}


def test_stop() -> None:
    """After close() no call begins, and those that wait for their turn end."""
    transport = FastTransport(Response(429, {}))
    transport.close()
    with pytest.raises(CloudAway, match="stopped"):
        transport.get()
    assert transport.client.asked == []

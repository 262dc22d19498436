# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.azure.login`, ``auth_file`` and ``client_assertion`` (AZ-1)."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from nodepool.driver.azure.login import AzureLogin, client_assertion, read_auth_file
from nodepool.driver.framework.cloud_errors import CloudAway, LoginRefused
from nodepool.driver.framework.http.plain_http import HttpAnswer, NoAnswer, PlainHttp
from simulators.azure import AzureSettings, AzureSimulator
from tests.support.manual_clock import ManualClock
from tests.unit.driver.azure.support import certificate_pem

ACCOUNT = {"subscriptionId": "sub", "tenantId": "tenant", "clientId": "client", "clientSecret": "swordfish"}


class Http:
    """Answers with what the test wrote."""

    def __init__(self) -> None:
        self.answers: list[HttpAnswer | NoAnswer] = []
        self.sent: list[tuple[str, str, dict[str, str], dict[str, str]]] = []

    def token(self, token: str, seconds: float = 3600) -> None:
        self.answers.append(HttpAnswer(200, {}, json.dumps({"access_token": token, "expires_in": seconds}).encode()))

    def send(self, method: str, url: str, headers: Any, body: bytes = b"", query: Any = None) -> HttpAnswer:
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        self.sent.append((method, url, dict(headers), form or dict(query or {})))
        answer = self.answers.pop(0)
        if isinstance(answer, NoAnswer):
            raise answer
        return answer


def write(directory: Path, **changes: Any) -> str:
    """The file; None takes a key away."""
    content = {name: value for name, value in {**ACCOUNT, **changes}.items() if value is not None}
    path = directory / "auth.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


def login(directory: Path, http: Http, clock: ManualClock | None = None, **changes: Any) -> AzureLogin:
    return AzureLogin("north", write(directory, **changes), http, clock or ManualClock())  # type: ignore[arg-type]


def bearer(found: AzureLogin) -> str:
    return found.headers()["Authorization"].removeprefix("Bearer ")


def test_client_secret(tmp_path: Path) -> None:
    """AZ-1: one POST; the endpoints of the public cloud, unless the file names others."""
    http = Http()
    http.token("one")
    assert bearer(login(tmp_path, http)) == "one"
    assert http.sent == [
        (
            "POST",
            "https://login.microsoftonline.com/tenant/oauth2/v2.0/token",
            {"Content-Type": "application/x-www-form-urlencoded"},
            {
                "grant_type": "client_credentials",
                "client_id": "client",
                "scope": "https://management.azure.com/.default",
                "client_secret": "swordfish",
            },
        )
    ]


def test_endpoints(tmp_path: Path) -> None:
    """AZ-1 (not repeated): clouds of governments have endpoints of their own."""
    http = Http()
    http.token("one")
    made = login(
        tmp_path,
        http,
        activeDirectoryEndpointUrl="https://login.chinacloudapi.cn/",
        resourceManagerEndpointUrl="https://management.chinacloudapi.cn/",
    )
    bearer(made)
    _, url, _, form = http.sent[0]
    assert url.startswith("https://login.chinacloudapi.cn/tenant/")
    assert form["scope"] == "https://management.chinacloudapi.cn/.default"
    assert made.account.arm_url == "https://management.chinacloudapi.cn"


def test_renewed_before_it_ends(tmp_path: Path) -> None:
    """AZ-1: 300 s before; the file is read again, so a secret may be replaced."""
    http, clock = Http(), ManualClock()
    http.token("one")
    http.token("two")
    made = login(tmp_path, http, clock)
    assert bearer(made) == "one"
    write(tmp_path, clientSecret="new")
    clock.now += 3299
    assert bearer(made) == "one"
    clock.now += 1
    assert bearer(made) == "two"
    assert http.sent[1][3]["client_secret"] == "new"


def test_trouble_while_the_token_is_valid(tmp_path: Path) -> None:
    """AZ-1: a renewal without an answer does not end what works."""
    http, clock = Http(), ManualClock()
    http.token("one")
    http.answers.append(NoAnswer("no answer", maybe_done=True))
    http.answers.append(HttpAnswer(503, {}, b"down"))
    http.token("two")
    made = login(tmp_path, http, clock)
    bearer(made)
    clock.now += 3400
    assert bearer(made) == "one"
    clock.now += 1
    assert bearer(made) == "one"
    clock.now += 199
    with pytest.raises(CloudAway, match="503"):
        bearer(made)
    assert bearer(made) == "two"


def test_refused(tmp_path: Path) -> None:
    """AZ-1: with the words of Azure, without the secret; nobody else asks right after."""
    http, clock = Http(), ManualClock()
    told = {"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret\r\nTrace: 1"}
    http.answers.append(HttpAnswer(401, {}, json.dumps(told).encode()))
    made = login(tmp_path, http, clock)
    for _ in range(2):
        with pytest.raises(LoginRefused, match="invalid_client: AADSTS7000215: Invalid client secret Trace") as caught:
            made.headers()
        assert "swordfish" not in str(caught.value)
        assert not caught.value.maybe_done
    assert len(http.sent) == 1
    clock.now += 10
    http.token("one")
    assert bearer(made) == "one"


def test_token_that_azure_does_not_accept(tmp_path: Path) -> None:
    http = Http()
    http.token("one")
    http.token("two")
    made = login(tmp_path, http)
    bearer(made)
    made.refused(made.headers())
    assert bearer(made) == "two"


def test_odd_answer(tmp_path: Path) -> None:
    http = Http()
    http.answers.append(HttpAnswer(200, {}, b"<html>"))
    with pytest.raises(CloudAway, match="has no token"):
        login(tmp_path, http).headers()


def test_federated_token(tmp_path: Path) -> None:
    """AZ-1 (today): the token of another identity provider, read each time."""
    (tmp_path / "token").write_text("a.b.c\n")
    http = Http()
    http.token("one")
    bearer(login(tmp_path, http, clientSecret=None, federatedTokenFile="token"))
    form = http.sent[0][3]
    assert form["client_assertion"] == "a.b.c"
    assert form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    assert "client_secret" not in form


def test_managed_identity(tmp_path: Path) -> None:
    """AZ-1 (today): no secret at all."""
    http = Http()
    http.token("one")
    bearer(login(tmp_path, http, clientSecret=None, tenantId=None, managedIdentity=True))
    method, url, headers, query = http.sent[0]
    assert (method, url) == ("GET", "http://169.254.169.254/metadata/identity/oauth2/token")
    assert headers == {"Metadata": "true"}
    assert query == {
        "api-version": "2018-02-01",
        "resource": "https://management.azure.com",
        "client_id": "client",
    }


@pytest.mark.parametrize("status", [404, 410, 429])
def test_identity_that_is_not_ready(tmp_path: Path, status: int) -> None:
    """AZ-1 (today): IMDS is updated, or the identity was assigned a moment ago: nothing is to be corrected."""
    http = Http()
    http.answers.append(HttpAnswer(status, {}, b""))
    http.token("one")
    made = login(tmp_path, http, clientSecret=None, tenantId=None, managedIdentity=True)
    with pytest.raises(CloudAway, match=f"{status}: status {status}; the metadata service is asked again") as caught:
        made.headers()
    assert not isinstance(caught.value, LoginRefused)
    assert bearer(made) == "one"


@pytest.mark.parametrize("known", [True, False])
def test_certificate(tmp_path: Path, pem: bytes, known: bool) -> None:
    """AZ-1 (today): a JWT that the certificate's key signs; the simulator verifies it."""
    (tmp_path / "client.pem").write_bytes(pem)
    other = certificate_pem()
    with AzureSimulator(AzureSettings(certificate=(pem if known else other).decode())) as simulator:
        path = simulator.write_auth_file(tmp_path / "auth.json")
        told = json.loads(path.read_text())
        told["clientCertificate"] = "client.pem"
        del told["clientSecret"]
        path.write_text(json.dumps(told))
        made = AzureLogin("north", str(path), PlainHttp(1))
        if known:
            assert bearer(made)
        else:
            with pytest.raises(LoginRefused, match="AADSTS700027"):
                made.headers()


def test_assertion(pem: bytes) -> None:
    """RFC 7523, RFC 7515; learn.microsoft.com/entra/identity-platform/certificate-credentials: PS256, ``x5t#S256``.

    With the same certificate MSAL makes the same: ``msal/application.py``.
    """
    head, claims, signature = client_assertion(pem, "client", "https://login/token", 1000, 600).split(".")
    certificate = x509.load_pem_x509_certificate(pem)
    decoded = [json.loads(base64.urlsafe_b64decode(part + "==")) for part in (head, claims)]
    print_of = base64.urlsafe_b64encode(certificate.fingerprint(hashes.SHA256())).rstrip(b"=").decode()
    assert decoded[0] == {"alg": "PS256", "typ": "JWT", "x5t#S256": print_of}
    del decoded[1]["jti"]
    assert decoded[1] == {
        "aud": "https://login/token",
        "iss": "client",
        "sub": "client",
        "nbf": 1000,
        "exp": 1600,
    }
    key = certificate.public_key()
    assert isinstance(key, rsa.RSAPublicKey)
    signed = base64.urlsafe_b64decode(signature + "==")
    pss = padding.PSS(padding.MGF1(hashes.SHA256()), hashes.SHA256.digest_size)
    key.verify(signed, f"{head}.{claims}".encode(), pss, hashes.SHA256())


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"clientSecret": None}, "exactly one of clientSecret"),
        ({"managedIdentity": True}, "exactly one of clientSecret"),
        ({"tenantId": None}, "has no tenantId"),
        ({"subscriptionId": 7}, "has no subscriptionId"),
        ({"resourceManagerEndpointUrl": "management"}, "resourceManagerEndpointUrl"),
        ({"clientSecret": None, "federatedTokenFile": "nothing"}, "nothing"),
        ({"clientSecret": None, "clientCertificate": "auth.json"}, "login failed"),
    ],
)
def test_bad_file(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    """AZ-1: what is missing is told with the file, and nothing is sent."""
    http = Http()
    with pytest.raises(LoginRefused, match=told):
        login(tmp_path, http, **changes).headers()
    assert not http.sent


@pytest.mark.parametrize("content", [None, "", "[]", "{"])
def test_no_file(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "auth.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(LoginRefused, match=r"auth\.json"):
        read_auth_file(str(path))


def test_no_path() -> None:
    with pytest.raises(LoginRefused, match="add auth-path"):
        read_auth_file(None)


def test_secret_is_not_shown(tmp_path: Path) -> None:
    """O-17: not even where an object is printed."""
    assert "swordfish" not in repr(read_auth_file(write(tmp_path)))

# SPDX-License-Identifier: Apache-2.0
"""How the driver logs in: the file with the credentials, and tokens (AZ-1)."""

from __future__ import annotations

import base64
import datetime
import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from nodepool.driver.azure.login import AzureLogin, read_auth_file
from nodepool.driver.framework.cloud_errors import CloudAway, LoginRefused
from nodepool.driver.framework.http.plain_http import HttpAnswer, NoAnswer
from tests.support.manual_clock import ManualClock
from tests.unit.driver.azure.tables import table

ACCOUNT = {"subscriptionId": "sub", "tenantId": "tenant", "clientId": "client", "clientSecret": "swordfish"}
PUBLIC = "https://login.microsoftonline.com/tenant/oauth2/v2.0/token"
CHINA = "https://login.chinacloudapi.cn"


def token(text: str) -> HttpAnswer:
    return HttpAnswer(200, {}, json.dumps({"access_token": text, "expires_in": 3600}).encode())


class Http:
    """Answers with what the test wrote."""

    def __init__(self, *answers: HttpAnswer | NoAnswer) -> None:
        self.answers = list(answers)
        self.clock = ManualClock()
        self.sent: list[tuple[str, str, dict[str, str], dict[str, str]]] = []

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


def login(directory: Path, http: Http, **changes: Any) -> AzureLogin:
    return AzureLogin("north", write(directory, **changes), http, http.clock)  # type: ignore[arg-type]


def bearer(found: AzureLogin) -> str:
    return found.headers()["Authorization"].removeprefix("Bearer ")


IDENTITY = {"clientSecret": None, "tenantId": None, "managedIdentity": True}
SECRET = {
    "grant_type": "client_credentials",
    "client_id": "client",
    "scope": "https://management.azure.com/.default",
    "client_secret": "swordfish",
}


@pytest.mark.parametrize(("changes", "method", "url", "headers", "form"), table("azure", "ways"))
def test_ways(
    tmp_path: Path, changes: dict[str, Any], method: str, url: str, headers: dict[str, str], form: dict[str, str]
) -> None:
    """AZ-1: one call for a token, at the endpoints of the public cloud, unless the file names others."""
    (tmp_path / "token").write_text("a.b.c\n")
    http = Http(token("one"))
    assert bearer(login(tmp_path, http, **changes)) == "one"
    ((asked, at, given, sent),) = http.sent
    assert (asked, at) == (method, url)
    assert given.items() >= headers.items()
    assert sent.items() >= form.items()
    assert ("client_secret" in sent) is (changes.get("clientSecret", "") is not None)


def test_renewed_before_it_ends(tmp_path: Path) -> None:
    """AZ-1: 300 s before; the file is read again, so a secret may be replaced."""
    http = Http(token("one"), token("two"), token("three"))
    made = login(tmp_path, http)
    assert bearer(made) == "one"
    write(tmp_path, clientSecret="new")
    http.clock.now += 3299
    assert bearer(made) == "one"
    http.clock.now += 1
    assert bearer(made) == "two"
    assert http.sent[1][3]["client_secret"] == "new"
    # Azure does not accept it any more.
    made.refused(made.headers())
    assert bearer(made) == "three"


def test_trouble_while_the_token_is_valid(tmp_path: Path) -> None:
    """AZ-1: a renewal without an answer does not end what works."""
    no_answer, down = NoAnswer("no answer", maybe_done=True), HttpAnswer(503, {}, b"down")
    http = Http(token("one"), no_answer, down, token("two"))
    made = login(tmp_path, http)
    bearer(made)
    for seconds in (3400, 1):
        http.clock.now += seconds
        assert bearer(made) == "one"
    http.clock.now += 199
    with pytest.raises(CloudAway, match="503"):
        bearer(made)
    assert bearer(made) == "two"


def test_refused(tmp_path: Path) -> None:
    """AZ-1, O-17: with the words of Azure, without the secret; the next call does not ask right after."""
    refusal = {"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret\r\nTrace: 1"}
    http = Http(HttpAnswer(401, {}, json.dumps(refusal).encode()), token("one"))
    made = login(tmp_path, http)
    for _ in range(2):
        with pytest.raises(LoginRefused, match="invalid_client: AADSTS7000215: Invalid client secret Trace") as caught:
            made.headers()
        assert "swordfish" not in str(caught.value)
        assert not caught.value.maybe_done
    assert len(http.sent) == 1
    http.clock.now += 10
    assert bearer(made) == "one"
    assert "swordfish" not in repr(read_auth_file(write(tmp_path)))


@pytest.mark.parametrize("status", [404, 410, 429])
def test_identity_that_is_not_ready(tmp_path: Path, status: int) -> None:
    """AZ-1 (today): IMDS is updated, or the identity was assigned a moment ago: nothing is to be corrected."""
    made = login(tmp_path, Http(HttpAnswer(status, {}, b""), token("one")), **IDENTITY)
    with pytest.raises(CloudAway, match=f"{status}: status {status}; the metadata service is asked again") as caught:
        made.headers()
    assert not isinstance(caught.value, LoginRefused)
    assert bearer(made) == "one"


def test_odd_answer(tmp_path: Path) -> None:
    with pytest.raises(CloudAway, match="has no token"):
        login(tmp_path, Http(HttpAnswer(200, {}, b"<html>"))).headers()


# -- certificates --


def certificate_pem() -> bytes:
    """A certificate that signs itself, and its key."""
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "nodepool")])
    begin = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, begin, begin + datetime.timedelta(days=3650))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM) + private


def test_certificate(tmp_path: Path) -> None:
    """AZ-1 (today): a JWT that the certificate's key signs.

    RFC 7523, RFC 7515; learn.microsoft.com/entra/identity-platform/certificate-credentials: PS256, ``x5t#S256``. With
    the same certificate MSAL makes the same: ``msal/application.py``.
    """
    pem = certificate_pem()
    (tmp_path / "client.pem").write_bytes(pem)
    http = Http(token("one"))
    assert bearer(login(tmp_path, http, clientSecret=None, clientCertificate="client.pem")) == "one"
    head, claims, signature = http.sent[0][3]["client_assertion"].split(".")
    certificate = x509.load_pem_x509_certificate(pem)
    decoded = [json.loads(base64.urlsafe_b64decode(part + "==")) for part in (head, claims)]
    print_of = base64.urlsafe_b64encode(certificate.fingerprint(hashes.SHA256())).rstrip(b"=").decode()
    assert decoded[0] == {"alg": "PS256", "typ": "JWT", "x5t#S256": print_of}
    assert decoded[1].pop("jti")
    assert decoded[1].pop("exp") - decoded[1].pop("nbf") == 600
    assert decoded[1] == {"aud": PUBLIC, "iss": "client", "sub": "client"}
    key = certificate.public_key()
    assert isinstance(key, rsa.RSAPublicKey)
    pss = padding.PSS(padding.MGF1(hashes.SHA256()), hashes.SHA256.digest_size)
    key.verify(base64.urlsafe_b64decode(signature + "=="), f"{head}.{claims}".encode(), pss, hashes.SHA256())


# -- the file --


@pytest.mark.parametrize(("changes", "problem"), table("azure", "bad_file"))
def test_bad_file(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    """AZ-1: the error names the file and what is missing, and nothing is sent."""
    http = Http()
    with pytest.raises(LoginRefused, match=problem):
        login(tmp_path, http, **changes).headers()
    assert not http.sent


@pytest.mark.parametrize("content", [None, "", "[]", "{"])
def test_no_file(tmp_path: Path, content: str | None) -> None:
    """AZ-1: nor is there a path."""
    path = tmp_path / "auth.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(LoginRefused, match=r"auth\.json"):
        read_auth_file(str(path))
    with pytest.raises(LoginRefused, match="add auth-path"):
        read_auth_file(None)

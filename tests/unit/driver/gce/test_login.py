# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.gce.client`, with google-auth and without Google."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from nodepool.driver.framework.cloud_errors import CloudAway, LoginRefused
from nodepool.driver.framework.http.plain_http import HttpAnswer, NoAnswer
from nodepool.driver.gce.client import GoogleLogin
from tests.support.manual_clock import ManualClock


class Http:
    """Answers with what the test wrote, by the path of the address."""

    def __init__(self) -> None:
        self.answers: dict[str, HttpAnswer | NoAnswer] = {}
        self.sent: list[tuple[str, str, dict[str, str]]] = []

    def token(self, path: str, token: str, **more: Any) -> None:
        content = {"access_token": token, "expires_in": 3600, "token_type": "Bearer", **more}
        headers = {"content-type": "application/json", "metadata-flavor": "Google"}
        self.answers[path] = HttpAnswer(200, headers, json.dumps(content).encode())

    def send(
        self, method: str, url: str, headers: Any, body: Any = None, query: Any = None, seconds: float = 0.0
    ) -> HttpAnswer:
        text = body.decode() if isinstance(body, bytes) else str(body or "")
        self.sent.append((method, url, {name: values[0] for name, values in parse_qs(text).items()}))
        answer = self.answers.get(urlsplit(url).path, HttpAnswer(404, {}, b"{}"))
        if isinstance(answer, NoAnswer):
            raise answer
        return answer


@pytest.fixture(scope="module")
def private_key() -> str:
    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return pem.decode()


@pytest.fixture
def http() -> Http:
    return Http()


def account(private_key: str) -> dict[str, Any]:
    return {
        "type": "service_account",
        "project_id": "lab",
        "private_key_id": "1",
        "private_key": private_key,
        "client_email": "nodepool@lab.iam.gserviceaccount.com",
        "token_uri": "https://oauth2.example.org/token",
    }


def login(directory: Path, http: Http, content: Any, clock: ManualClock | None = None) -> GoogleLogin:
    path = directory / "key.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return GoogleLogin("north", str(path), http, clock or ManualClock())  # type: ignore[arg-type]


def bearer(found: GoogleLogin) -> str:
    return found.headers()["Authorization"].removeprefix("Bearer ")


def test_service_account(tmp_path: Path, http: Http, private_key: str) -> None:
    """GC-1: a signed request for a token, to the address in the file; it is renewed before its end."""
    clock = ManualClock()
    made = login(tmp_path, http, account(private_key), clock)
    http.token("/token", "one")
    assert bearer(made) == bearer(made) == "one"
    ((method, url, form),) = http.sent
    assert (method, url) == ("POST", "https://oauth2.example.org/token")
    claims = json.loads(base64.urlsafe_b64decode(form["assertion"].split(".")[1] + "=="))
    assert claims["iss"] == "nodepool@lab.iam.gserviceaccount.com"
    assert claims["scope"] == "https://www.googleapis.com/auth/cloud-platform"
    clock.now += 3400
    http.token("/token", "two")
    assert bearer(made) == "two"


def test_application_default_credentials(
    tmp_path: Path, http: Http, private_key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GC-1: the file of the environment."""
    path = tmp_path / "default.json"
    path.write_text(json.dumps(account(private_key)), encoding="utf-8")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    http.token("/token", "one")
    assert bearer(GoogleLogin("north", None, http, ManualClock())) == "one"  # type: ignore[arg-type]


@pytest.mark.parametrize("status", [404, 410, 429])
def test_metadata_server_is_not_ready(tmp_path: Path, http: Http, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    """GC-1: it answers, and has no account yet: nothing is to be corrected, and the next call asks again."""
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    # google-auth tries it several times.
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    http.answers[""] = HttpAnswer(200, {"metadata-flavor": "Google"}, b"")
    text = {"content-type": "application/text", "metadata-flavor": "Google"}
    http.answers["/computeMetadata/v1/project/project-id"] = HttpAnswer(200, text, b"lab")
    http.answers["/computeMetadata/v1/universe/universe-domain"] = HttpAnswer(200, text, b"googleapis.com")
    http.answers["/computeMetadata/v1/instance/service-accounts/default/"] = HttpAnswer(status, text, b"")
    with pytest.raises(CloudAway, match="; the metadata service is asked again") as caught:
        bearer(GoogleLogin("north", None, http, ManualClock()))  # type: ignore[arg-type]
    assert not isinstance(caught.value, LoginRefused)


def test_metadata_server(tmp_path: Path, http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    """GC-1: the service account of the machine."""
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    http.answers[""] = HttpAnswer(200, {"metadata-flavor": "Google"}, b"")
    base = "/computeMetadata/v1"
    text = {"content-type": "application/text", "metadata-flavor": "Google"}
    http.answers[f"{base}/project/project-id"] = HttpAnswer(200, text, b"lab")
    http.answers[f"{base}/universe/universe-domain"] = HttpAnswer(200, text, b"googleapis.com")
    information = {"email": "a@lab", "scopes": ["s"], "aliases": ["default"]}
    headers = {"content-type": "application/json", "metadata-flavor": "Google"}
    path = f"{base}/instance/service-accounts/default"
    http.answers[f"{path}/"] = HttpAnswer(200, headers, json.dumps(information).encode())
    http.token(f"{path}/token", "one")
    http.token(f"{base}/instance/service-accounts/a@lab/token", "one")
    assert bearer(GoogleLogin("north", None, http, ManualClock())) == "one"  # type: ignore[arg-type]


def test_workload_identity(tmp_path: Path, http: Http) -> None:
    """GC-1: a token from a file is exchanged."""
    subject = tmp_path / "subject"
    subject.write_text("swordfish", encoding="utf-8")
    content = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/p",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": "https://sts.googleapis.com/v1/token",
        "credential_source": {"file": str(subject)},
    }
    http.token("/v1/token", "one", issued_token_type="urn:ietf:params:oauth:token-type:access_token")
    assert bearer(login(tmp_path, http, content)) == "one"
    assert http.sent[0][2]["subject_token"] == "swordfish"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("not JSON", "is not JSON"),
        ("[]", "not one of service_account, external_account"),
        ({"type": "gdch_service_account"}, "is 'gdch_service_account', not one of"),
        ({"type": "service_account"}, "correct"),
        ({"type": "external_account", "credential_source": {"executable": {"command": "x"}}}, "is not supported"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, http: Http, content: Any, told: str) -> None:
    """None runs a program."""
    with pytest.raises(LoginRefused, match=told):
        bearer(login(tmp_path, http, content))
    assert http.sent == []


def test_no_file(tmp_path: Path, http: Http) -> None:
    made = GoogleLogin("north", str(tmp_path / "nothing"), http, ManualClock())  # type: ignore[arg-type]
    with pytest.raises(LoginRefused, match="nothing cannot be read: No such file or directory; correct credentials-f"):
        bearer(made)


def test_refused(tmp_path: Path, http: Http, private_key: str) -> None:
    """What Google says, and no secret."""
    refusal = {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
    http.answers["/token"] = HttpAnswer(400, {"content-type": "application/json"}, json.dumps(refusal).encode())
    with pytest.raises(LoginRefused, match="invalid_grant: Invalid JWT Signature") as caught:
        bearer(login(tmp_path, http, account(private_key)))
    assert "PRIVATE" not in str(caught.value)


def test_metadata_server_is_away(tmp_path: Path, http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cloud is away: without its metadata server a machine of Google only looks as if it had no credentials."""
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    # google-auth tries it several times.
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    made = GoogleLogin("north", None, http, ManualClock())  # type: ignore[arg-type]
    http.answers[""] = NoAnswer("no answer from http://169.254.169.254: timed out", maybe_done=False)
    with pytest.raises(CloudAway, match=r"credentials were not found.*; add credentials-file") as caught:
        bearer(made)
    assert (isinstance(caught.value, LoginRefused), caught.value.maybe_done) == (False, False)
    http.answers[""] = HttpAnswer(404, {}, b"")
    with pytest.raises(LoginRefused, match=r"credentials were not found.*; add credentials-file"):
        bearer(GoogleLogin("north", None, http, ManualClock()))  # type: ignore[arg-type]


def test_no_answer(tmp_path: Path, http: Http, private_key: str) -> None:
    """The cloud is away: the launch waits for it, and the circuit breaker hears of it."""
    http.answers["/token"] = NoAnswer("no answer from https://oauth2.example.org: timed out", maybe_done=False)
    with pytest.raises(CloudAway, match="timed out") as caught:
        bearer(login(tmp_path, http, account(private_key)))
    assert not isinstance(caught.value, LoginRefused)

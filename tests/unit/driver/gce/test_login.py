# SPDX-License-Identifier: Apache-2.0
"""How the driver logs in, with google-auth and without Google (GC-1)."""

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
from tests.support.tables import driver_table


class Http:
    """Answers with what the test wrote, by the path of the address."""

    def __init__(self) -> None:
        self.clock = ManualClock().rules()
        self.answers: dict[str, HttpAnswer | NoAnswer] = {}
        self.sent: list[tuple[str, str, dict[str, str]]] = []

    def answer(self, path: str, data: Any, status: int = 200) -> None:
        kind = "text" if isinstance(data, str) else "json"
        headers = {"content-type": f"application/{kind}", "metadata-flavor": "Google"}
        self.answers[path] = HttpAnswer(status, headers, (data if kind == "text" else json.dumps(data)).encode())

    def token(self, path: str, token: str, **more: Any) -> None:
        self.answer(path, {"access_token": token, "expires_in": 3600, "token_type": "Bearer", **more})

    def send(self, method: str, url: str, headers: Any, body: Any = None, *_: Any, **__: Any) -> HttpAnswer:
        text = body.decode() if isinstance(body, bytes) else str(body or "")
        self.sent.append((method, url, {name: values[0] for name, values in parse_qs(text).items()}))
        answer = self.answers.get(urlsplit(url).path, HttpAnswer(404, {}, b"{}"))
        if isinstance(answer, NoAnswer):
            raise answer
        return answer

    def login(self, file: str | None) -> GoogleLogin:
        return GoogleLogin("north", file, self)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def account() -> dict[str, Any]:
    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    whose = {"client_email": "nodepool@lab.iam.gserviceaccount.com", "token_uri": "https://oauth2.example.org/token"}
    return {"type": "service_account", "project_id": "lab", "private_key_id": "1", "private_key": pem.decode(), **whose}


@pytest.fixture
def http() -> Http:
    return Http()


def write(directory: Path, content: Any) -> str:
    path = directory / "key.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(path)


def bearer(found: GoogleLogin) -> str:
    return found.headers()["Authorization"].removeprefix("Bearer ")


def test_service_account(tmp_path: Path, http: Http, account: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """GC-1: a signed request for a token, to the address in the file, also that of the environment; it is renewed."""
    file = write(tmp_path, account)
    made = http.login(file)
    http.token("/token", "one")
    assert bearer(made) == bearer(made) == "one"
    ((method, url, form),) = http.sent
    assert (method, url) == ("POST", "https://oauth2.example.org/token")
    claims = json.loads(base64.urlsafe_b64decode(form["assertion"].split(".")[1] + "=="))
    assert claims["iss"] == account["client_email"]
    assert claims["scope"] == "https://www.googleapis.com/auth/cloud-platform"
    http.clock.now += 3400
    http.token("/token", "two")
    assert bearer(made) == "two"
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
    assert bearer(http.login(None)) == "two"


METADATA = "/computeMetadata/v1"
ACCOUNT = f"{METADATA}/instance/service-accounts/default/"


@pytest.fixture
def on_a_machine(tmp_path: Path, http: Http, monkeypatch: pytest.MonkeyPatch) -> Http:
    """Of Google: its metadata server answers."""
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    # google-auth tries it several times.
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    http.answer("", "")
    http.answer(f"{METADATA}/project/project-id", "lab")
    http.answer(f"{METADATA}/universe/universe-domain", "googleapis.com")
    http.answer(ACCOUNT, {"email": "a@lab", "scopes": ["s"], "aliases": ["default"]})
    for name in ("default", "a@lab"):
        http.token(f"{METADATA}/instance/service-accounts/{name}/token", "one")
    return http


@pytest.mark.parametrize("status", [404, 410, 429])
def test_metadata_server_is_not_ready(on_a_machine: Http, status: int) -> None:
    """GC-1: it answers, and has no account yet: nothing is to be corrected, and the next call asks again."""
    on_a_machine.answer(ACCOUNT, "", status)
    with pytest.raises(CloudAway, match="; the metadata service is asked again") as caught:
        bearer(on_a_machine.login(None))
    assert not isinstance(caught.value, LoginRefused)


def test_metadata_server_is_away(on_a_machine: Http) -> None:
    """The cloud is away: without its metadata server a machine of Google only looks as if it had no credentials."""
    on_a_machine.answers[""] = NoAnswer("no answer from http://169.254.169.254: timed out", maybe_done=False)
    words = r"credentials were not found.*; add credentials-file"
    with pytest.raises(CloudAway, match=words) as caught:
        bearer(on_a_machine.login(None))
    assert (isinstance(caught.value, LoginRefused), caught.value.maybe_done) == (False, False)
    on_a_machine.answers[""] = HttpAnswer(404, {}, b"")
    with pytest.raises(LoginRefused, match=words):
        bearer(on_a_machine.login(None))


@pytest.mark.parametrize(("content", "words"), driver_table("gce", "files_that_are_refused"))
def test_files_that_are_refused(tmp_path: Path, http: Http, content: Any, words: str) -> None:
    """GC-1: none runs a program."""
    with pytest.raises(LoginRefused, match=words):
        bearer(http.login(str(tmp_path / "nothing") if content is None else write(tmp_path, content)))
    assert http.sent == []

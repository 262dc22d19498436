# SPDX-License-Identifier: Apache-2.0
"""How the driver logs in: the file with the credentials, and tokens (AZ-1)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nodepool.driver.azure.login import AzureLogin, read_auth_file
from nodepool.driver.framework.cloud_errors import CloudAway, LoginRefused
from tests.support.tables import driver_table
from tests.unit.driver.recorded_http import RecordedHttp

ACCOUNT = {"subscriptionId": "sub", "tenantId": "tenant", "clientId": "client", "clientSecret": "swordfish"}
PUBLIC = "https://login.microsoftonline.com/tenant/oauth2/v2.0/token"
TOKEN = json.dumps({"access_token": "one", "expires_in": 3600})


def write(directory: Path, **changes: Any) -> str:
    """The file; None takes a key away."""
    path = directory / "auth.json"
    path.write_text(json.dumps({name: value for name, value in {**ACCOUNT, **changes}.items() if value is not None}))
    return str(path)


def login(directory: Path, http: Any, **changes: Any) -> AzureLogin:
    return AzureLogin("north", write(directory, **changes), http)


@pytest.mark.parametrize(("changes", "method", "url", "headers", "form"), driver_table("azure", "ways"))
def test_ways(
    tmp_path: Path, changes: dict[str, Any], method: str, url: str, headers: dict[str, str], form: dict[str, str]
) -> None:
    """AZ-1: one call for a token, at the endpoints of the public cloud, unless the file names others."""
    (tmp_path / "token").write_text("a.b.c\n")
    http = RecordedHttp((200, TOKEN), again=True)
    assert login(tmp_path, http, **changes).headers() == {"Authorization": "Bearer one"}
    ((asked, at, given, *_),), (sent,) = http.sent, http.forms
    assert (asked, at) == (method, url)
    assert given.items() >= headers.items()
    assert sent.items() >= form.items()
    assert ("client_secret" in sent) is (changes.get("clientSecret", "") is not None)


def test_new_secret(tmp_path: Path) -> None:
    """AZ-1: the file is read again for each token, so a secret may be replaced, and a token ends."""
    http = RecordedHttp((200, TOKEN), again=True)
    made = login(tmp_path, http)
    present = made.headers()
    write(tmp_path, clientSecret="new")
    made.headers()
    made.refused(present)
    made.headers()
    assert [sent["client_secret"] for sent in http.forms] == ["swordfish", "new"]
    assert "new" not in repr(read_auth_file(write(tmp_path, clientSecret="new")))


@pytest.mark.parametrize(("changes", "status", "content", "kind", "words"), driver_table("azure", "logins_that_fail"))
def test_logins_that_fail(
    tmp_path: Path, changes: dict[str, Any], status: int, content: str, kind: type[CloudAway], words: str
) -> None:
    """AZ-1, O-17: with the words of Azure, without the secret; what only time mends is not called a refusal."""
    with pytest.raises(kind, match=words) as caught:
        login(tmp_path, RecordedHttp((status, content)), **changes).headers()
    assert (type(caught.value), caught.value.maybe_done) == (kind, False)
    assert "swordfish" not in str(caught.value)


@pytest.mark.parametrize(("content", "problem"), driver_table("azure", "bad_file"))
def test_bad_file(tmp_path: Path, content: dict[str, Any] | str | None, problem: str) -> None:
    """AZ-1: the error names the file and what is missing, and nothing is sent."""
    path, http = tmp_path / "auth.json", RecordedHttp()
    if isinstance(content, dict):
        write(tmp_path, **content)
    elif content is not None:
        path.write_text(content)
    for name, words in ((str(path), problem), (None, "add auth-path")):
        with pytest.raises(LoginRefused, match=words):
            AzureLogin("north", name, http).headers()
    assert not http.sent

# SPDX-License-Identifier: Apache-2.0
"""How the driver logs in (IV-1). The IBM SDK for Python itself says where credentials are, and what they mean."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import jwt
import pytest
from ibm_cloud_sdk_core.get_authenticator import get_authenticator_from_environment

from nodepool.driver.framework.cloud_errors import LoginRefused
from nodepool.driver.framework.http.plain_http import NoAnswer
from nodepool.driver.ibmvpc.login import IbmLogin, authenticator_of, read_credentials
from tests.support.tables import driver_table
from tests.unit.driver.recorded_http import RecordedHttp


@pytest.fixture(autouse=True)
def _nothing_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials of this machine."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("VPC_") or name in ("IBM_CREDENTIALS_FILE", "VCAP_SERVICES"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize("variables", driver_table("ibmvpc", "kind_of_login"))
def test_kind_of_login(monkeypatch: pytest.MonkeyPatch, variables: str) -> None:
    """IV-1: the same variables, the same way to log in."""
    for variable in variables.split():
        name, _, value = variable.partition("=")
        monkeypatch.setenv(f"VPC_{name}", value)
    ours, theirs = authenticator_of(read_credentials(None)), get_authenticator_from_environment("vpc")
    assert type(ours) is type(theirs)
    managers = [vars(getattr(one, "token_manager", one)) for one in (ours, theirs)]
    first, second = ({**one, "lock": None, "iam_delegate": None} for one in managers)
    assert first == second


def write(directory: Path, *lines: str, name: str = "ibm.env") -> str:
    path = directory / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_file_of_the_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """IV-1, O-17: it wins; one without a line for the service does not count. What is shown has no secret."""
    monkeypatch.setenv("IBM_CREDENTIALS_FILE", write(tmp_path, "VPC_APIKEY=of the variable", name="variable.env"))
    found = read_credentials(write(tmp_path, "# VPC_APIKEY=", "VPC_APIKEY=of the file"))
    assert (found.values, "of the file" in repr(found)) == ({"APIKEY": "of the file"}, False)
    other = write(tmp_path, "KMS_APIKEY=other", "RESOURCE_MANAGER_URL=http://groups", name="other.env")
    found = read_credentials(other)
    assert (found.values["APIKEY"], found.groups_url) == ("of the variable", "http://groups")
    (tmp_path / "variable.env").write_bytes(b"\xff")
    with pytest.raises(LoginRefused, match="nor in the environment; add it to the file"):
        read_credentials(other)


def test_endpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """IV-1: those of the SDK's variables, and the usual ones."""
    monkeypatch.setenv("VPC_APIKEY", "k")
    monkeypatch.setenv("VPC_URL", "http://vpc/v1/")
    found = read_credentials(None)
    usual = "https://resource-controller.cloud.ibm.com"
    assert (found.vpc_url, found.groups_url) == ("http://vpc/v1", usual)


# -- tokens --

#: Of IAM, with the account that it is for (RFC 7519).
ONE, TWO = (
    jwt.encode({"iat": 2**32 - 3600, "exp": 2**32, "account": {"bss": name}}, "0" * 32, algorithm="HS256")
    for name in ("one", "two")
)
IDENTITY = "http://169.254.169.254/instance_identity/v1"


def login(directory: Path, http: RecordedHttp, *lines: str) -> IbmLogin:
    return IbmLogin("south", write(directory, *lines), http)


@pytest.mark.parametrize(("lines", "sent"), driver_table("ibmvpc", "ways"))
def test_ways(tmp_path: Path, lines: str, sent: list[tuple[str, str, dict[str, str], Any]]) -> None:
    """IV-1: what each kind asks for; the last token counts."""
    Path("token").write_text("a.b.c", encoding="utf-8")
    http = RecordedHttp()
    for token in (ONE, TWO)[: len(sent)]:
        http.token(token)
    found = login(tmp_path, http, *lines.split())
    assert found.account_id() == ("", "one", "two")[len(sent)]
    wanted = json.loads(json.dumps(sent).replace("one", ONE))
    for (method, url, headers, body, query), (how, where, given, content) in zip(http.sent, wanted, strict=True):
        assert (method, url, headers.items() >= given.items()) == (how, where, True)
        form = {name: values[0] for name, values in parse_qs(body).items()}
        document = json.loads(body) if body[:1] == "{" else form
        assert document.items() >= (content or {}).items()
        assert query == ({"version": "2022-03-01"} if url.startswith(IDENTITY) else {})


@pytest.mark.parametrize(("lines", "status", "data", "kind", "words"), driver_table("ibmvpc", "refused"))
def test_refused(tmp_path: Path, lines: str, status: int | None, data: Any, kind: type[Exception], words: str) -> None:
    """IV-1: with the words of IBM, without the key."""
    http = RecordedHttp()
    if status:
        http.answer(data, status)
    elif status is not None:
        http.answers.append(NoAnswer("no answer from iam: timed out", maybe_done=True))
    with pytest.raises(kind, match=words) as caught:
        login(tmp_path, http, *lines.split()).headers()
    assert type(caught.value) is kind
    assert not getattr(caught.value, "maybe_done", False)
    assert "swordfish" not in str(caught.value)
    assert len(http.sent) == (status is not None)


@pytest.mark.parametrize(("file", "words"), driver_table("ibmvpc", "no_credentials"))
def test_no_credentials(file: str | None, words: str) -> None:
    """IV-1: the SDK fails with an error of Python; here it says what to do."""
    with pytest.raises(LoginRefused, match=words):
        read_credentials(file)

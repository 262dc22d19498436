# SPDX-License-Identifier: Apache-2.0
"""How the driver logs in (IV-1). The IBM SDK for Python itself says where credentials are, and what they mean."""

from __future__ import annotations

import base64
import itertools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from ibm_cloud_sdk_core.get_authenticator import get_authenticator_from_environment
from ibm_cloud_sdk_core.utils import read_external_sources

from nodepool.driver.framework.cloud_errors import LoginRefused
from nodepool.driver.framework.http.plain_http import NoAnswer
from nodepool.driver.ibmvpc.login import VCAP_VARIABLE, IbmLogin, account_of, read_credentials
from tests.unit.driver.azure.tables import table
from tests.unit.driver.ibmvpc.support import Http

FILES = ("home", "here", "else")


@pytest.fixture(autouse=True)
def _nothing_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials of this machine, and three places for files."""
    for name in FILES:
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name in list(os.environ):
        if name.startswith("VPC_") or name in ("IBM_CREDENTIALS_FILE", VCAP_VARIABLE):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


# -- where credentials are --

VCAP: dict[str, Any] = table("ibmvpc", "vcap")


@pytest.mark.parametrize("kinds", VCAP.values(), ids=VCAP)
def test_services_of_a_platform(monkeypatch: pytest.MonkeyPatch, kinds: Mapping[str, Any]) -> None:
    """IV-1: the last place where it looks."""
    monkeypatch.setenv(VCAP_VARIABLE, json.dumps(kinds))
    found = external_sources("vpc", None, os.environ)
    assert (found.values, found.source) == (read_external_sources("vpc") or {}, VCAP_VARIABLE)


@pytest.mark.parametrize("files", [(), ("home",), ("here",), ("home", "here"), FILES, ("else",)], ids=" ".join)
@pytest.mark.parametrize("variable", [None, "", "else", "nowhere"])
def test_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: tuple[str, ...], variable: str | None) -> None:
    """IV-1: file of the variable, in the present directory, at home; the environment; the platform."""
    for name in files:
        text = "# VPC_APIKEY=\nKMS_APIKEY=other\n VPC_SCOPE=a=b \nVPC_X\n" if name == "home" else f"VPC_APIKEY={name}\n"
        (tmp_path / name / "ibm-credentials.env").write_text(text, encoding="utf-8")
    if variable is not None:
        path = str(tmp_path / variable / "ibm-credentials.env") if variable else ""
        monkeypatch.setenv("IBM_CREDENTIALS_FILE", path)
    for vcap, environment in itertools.product((False, True), ({}, {"VPC_APIKEY": "e"}, {"VPC_URL": "https://vpc/v1"})):
        with monkeypatch.context() as patch:
            for key, value in (
                {**environment, VCAP_VARIABLE: json.dumps(VCAP["called so"])} if vcap else environment
            ).items():
                patch.setenv(key, value)
            assert external_sources("vpc", None, os.environ).values == read_external_sources("vpc")


@pytest.mark.parametrize("variables", table("ibmvpc", "kind_of_login"))
def test_kind_of_login(monkeypatch: pytest.MonkeyPatch, variables: str) -> None:
    """IV-1: the same variables, the same way to log in."""
    for variable in variables.split():
        name, _, value = variable.partition("=")
        monkeypatch.setenv(f"VPC_{name}", value)
    wanted = get_authenticator_from_environment("vpc")
    assert wanted is not None
    assert read_credentials(None, os.environ).kind == wanted.authentication_type().lower()


def write(directory: Path, *lines: str, name: str = "ibm.env") -> str:
    path = directory / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def test_file_of_the_provider(tmp_path: Path) -> None:
    """IV-1, O-17: it wins; one without a line for the service does not count. What is shown has no secret."""
    environment = {"VPC_APIKEY": "of the environment"}
    environment["IBM_CREDENTIALS_FILE"] = write(tmp_path, "VPC_APIKEY=of the variable", name="variable.env")
    other = write(tmp_path, "KMS_APIKEY=other", name="other.env")
    found = read_credentials(write(tmp_path, "VPC_APIKEY=of the file"), environment)
    assert (found.get("APIKEY"), "of the file" in repr(found)) == ("of the file", False)
    assert read_credentials(None, environment).get("APIKEY") == "of the variable"
    del environment["IBM_CREDENTIALS_FILE"]
    assert read_credentials(other, environment).get("APIKEY") == "of the environment"


def test_endpoints() -> None:
    """IV-1: those of the SDK's variables; the one of tokens may be given with its path."""
    given = {"VPC_APIKEY": "k", "VPC_AUTH_URL": "https://iam.example.org/identity/token", "VPC_URL": "http://vpc/v1/"}
    found = read_credentials(None, {**given, "RESOURCE_MANAGER_URL": "http://groups"})
    assert (found.auth_url, found.vpc_url, found.groups_url) == (
        "https://iam.example.org",
        "http://vpc/v1",
        "http://groups",
    )
    assert found.resources_url == "https://resource-controller.cloud.ibm.com"
    assert read_credentials(None, {"VPC_APIKEY": "k"}).vpc_url is None


# -- tokens --

GRANT = "urn:ibm:params:oauth:grant-type:"
IAM = "https://iam.cloud.ibm.com/identity/token"
IDENTITY = "http://169.254.169.254/instance_identity/v1"


def login(directory: Path, http: Http, *lines: str) -> IbmLogin:
    return IbmLogin("south", write(directory, *lines), http, http.clock)  # type: ignore[arg-type]


def bearer(found: IbmLogin) -> str:
    return found.headers().get("Authorization", "").removeprefix("Bearer ")


KEY = {"grant_type": f"{GRANT}apikey", "apikey": "k"}
BASIC = f"Basic {base64.b64encode(b'bx:by').decode()}"
ASSUME = {"grant_type": f"{GRANT}assume", "access_token": "one", "profile_name": "ci", "account": "a1"}
CONTAINER = {"grant_type": f"{GRANT}cr-token", "cr_token": "a.b.c", "profile_id": "p1"}
FIRST = ("PUT", f"{IDENTITY}/token", {"Metadata-Flavor": "ibm"}, None)


@pytest.mark.parametrize(("lines", "sent"), table("ibmvpc", "ways"))
def test_ways(tmp_path: Path, lines: str, sent: list[tuple[str, str, dict[str, str], Any]]) -> None:
    """IV-1: what each kind asks for; the last token counts."""
    write(Path.cwd(), "a.b.c", name="token")
    http = Http()
    for number in range(len(sent)):
        http.token("one" if not number else "two")
    assert bearer(login(tmp_path, http, *lines.split())) == ("", "one", "two")[len(sent)]
    for (method, url, headers, body, query), (how, where, given, content) in zip(http.sent, sent, strict=True):
        assert (method, url, headers.items() >= given.items()) == (how, where, True)
        form = {name: values[0] for name, values in parse_qs(body).items()}
        assert content is None or content == (json.loads(body) if body[:1] == "{" else form)
        assert query == ({"version": "2022-03-01"} if url.startswith(IDENTITY) else {})


def test_renewed(tmp_path: Path) -> None:
    """IV-1: before the end of a token; one that is kept valid in the file is read again."""
    http = Http()
    http.token("one", 3600)
    http.token("two", 3600)
    made = login(tmp_path, http, "VPC_APIKEY=k")
    assert bearer(made) == bearer(made) == "one"
    http.clock.now += 3400
    assert (bearer(made), len(http.sent)) == ("two", 2)
    made = login(tmp_path, http, "VPC_AUTH_TYPE=bearerToken", "VPC_BEARER_TOKEN=one")
    assert bearer(made) == "one"
    write(tmp_path, "VPC_AUTH_TYPE=bearerToken", "VPC_BEARER_TOKEN=two")
    http.clock.now += 120
    assert (bearer(made), len(http.sent)) == ("two", 2)


NOT_FOUND = {"errors": [{"code": "not_found", "message": "later"}]}
NO_KEY = {"errorCode": "BXNIM0415E", "errorMessage": "Provided API key could not be found."}


@pytest.mark.parametrize(("lines", "status", "data", "kind", "words"), table("ibmvpc", "refused"))
def test_refused(tmp_path: Path, lines: str, status: int | None, data: Any, kind: type[Exception], words: str) -> None:
    """IV-1: with the words of IBM, without the key."""
    http = Http()
    if status:
        http.answer(data, status)
    elif status is not None:
        http.answers.append(NoAnswer("no answer from iam: timed out", maybe_done=True))
    with pytest.raises(kind, match=words) as caught:
        login(tmp_path, http, *lines.split()).headers()
    assert type(caught.value) is kind
    assert not getattr(caught.value, "maybe_done", False) or status == 200
    assert "swordfish" not in str(caught.value)
    assert len(http.sent) == (status is not None)


@pytest.mark.parametrize(("file", "vcap", "words"), table("ibmvpc", "no_credentials"))
def test_no_credentials(file: str | None, vcap: str | None, words: str) -> None:
    """IV-1: the SDK fails with an error of JSON or of Python; here it says what to do."""
    with pytest.raises(LoginRefused, match=words):
        read_credentials(file, {VCAP_VARIABLE: vcap} if vcap else {})


def test_account() -> None:
    """IV-2: resource groups are made in the account that the token names."""
    payload = base64.urlsafe_b64encode(json.dumps({"account": {"bss": "abc"}}).encode()).rstrip(b"=").decode()
    assert account_of(f"head.{payload}.signature") == "abc"
    assert account_of("no token") == account_of("a.b.c") == account_of("") == ""

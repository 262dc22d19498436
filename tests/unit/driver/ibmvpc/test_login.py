# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.ibmvpc.login` and ``credentials`` (IV-1)."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from nodepool.driver.framework.cloud_errors import CloudAway, LoginRefused
from nodepool.driver.framework.http.plain_http import NoAnswer
from nodepool.driver.ibmvpc.login import IbmLogin, account_of, read_credentials
from tests.support.manual_clock import ManualClock
from tests.unit.driver.ibmvpc.support import Http

GRANT = "urn:ibm:params:oauth:grant-type:"


@pytest.fixture(autouse=True)
def _nothing_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials of this machine."""
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path / "home")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("IBM_CREDENTIALS_FILE", raising=False)


def write(directory: Path, *lines: str, name: str = "ibm.env") -> str:
    path = directory / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def login(directory: Path, http: Http, *lines: str, clock: ManualClock | None = None) -> IbmLogin:
    return IbmLogin("south", write(directory, *lines), http, clock or ManualClock())  # type: ignore[arg-type]


def bearer(found: IbmLogin) -> str:
    return found.headers()["Authorization"].removeprefix("Bearer ")


def form(http: Http, index: int = 0) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(http.sent[index][3]).items()}


# -- where credentials are --


def test_api_key_of_the_file(tmp_path: Path) -> None:
    """IV-1: the content in the form VPC_AUTH_TYPE=, VPC_APIKEY=."""
    http = Http()
    http.token("one")
    made = login(tmp_path, http, "VPC_AUTH_TYPE=iam", "VPC_APIKEY=swordfish")
    assert bearer(made) == "one"
    method, url, headers, _, _ = http.sent[0]
    assert (method, url) == ("POST", "https://iam.cloud.ibm.com/identity/token")
    assert headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert form(http) == {"grant_type": f"{GRANT}apikey", "apikey": "swordfish"}


def test_the_file_wins_over_the_environment(tmp_path: Path) -> None:
    """IV-1: in the order of the SDK; a file without a line for the service does not count."""
    environment = {"VPC_APIKEY": "of the environment"}
    named = write(tmp_path, "VPC_APIKEY=of the file")
    variable = write(tmp_path, "VPC_APIKEY=of the variable", name="variable.env")
    other = write(tmp_path, "KMS_APIKEY=other", name="other.env")
    assert read_credentials(named, {**environment, "IBM_CREDENTIALS_FILE": variable}).get("APIKEY") == "of the file"
    found = read_credentials(None, {**environment, "IBM_CREDENTIALS_FILE": variable})
    assert found.get("APIKEY") == "of the variable"
    assert read_credentials(other, environment).get("APIKEY") == "of the environment"
    assert read_credentials(None, {**environment, "IBM_CREDENTIALS_FILE": "/nothing"}).get("APIKEY") != "of the file"
    write(Path.cwd(), "VPC_APIKEY=of home", name="ibm-credentials.env")
    assert read_credentials(None, environment).get("APIKEY") == "of home"


def test_kind_is_guessed(tmp_path: Path) -> None:
    """IV-1: with an API key it is iam, else the identity of the container."""
    assert read_credentials(None, {"VPC_APIKEY": "k"}).kind == "iam"
    assert read_credentials(None, {"VPC_IAM_PROFILE_ID": "p"}).kind == "container"
    assert read_credentials(None, {"VPC_AUTHTYPE": "VPC"}).kind == "vpc"


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


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["VPC_AUTH_TYPE=magic"], "choose one of iam, iamAssume, container, vpc, bearerToken"),
        (["VPC_AUTH_TYPE=iam"], r"ibm\.env has no VPC_APIKEY"),
        (["VPC_AUTH_TYPE=container"], "has no VPC_IAM_PROFILE_ID or VPC_IAM_PROFILE_NAME"),
        (["VPC_AUTH_TYPE=iamAssume", "VPC_APIKEY=k"], "has no VPC_IAM_PROFILE_ID"),
        (["VPC_AUTH_TYPE=iamAssume", "VPC_APIKEY=k", "VPC_IAM_PROFILE_NAME=n"], "without VPC_IAM_ACCOUNT_ID"),
        (["VPC_APIKEY=k", "VPC_AUTH_URL=iam"], "VPC_AUTH_URL"),
        (["# nothing"], r"ibm\.env nor in the environment; add it to the file"),
    ],
)
def test_bad_file(tmp_path: Path, lines: list[str], told: str) -> None:
    """IV-1: what is missing is told with the file, and nothing is sent."""
    http = Http()
    with pytest.raises(LoginRefused, match=told):
        login(tmp_path, http, *lines).headers()
    assert not http.sent


def test_no_credentials() -> None:
    with pytest.raises(LoginRefused, match="nor in the environment; add credentials-file to the provider"):
        read_credentials(None, {})


def test_no_file() -> None:
    with pytest.raises(LoginRefused, match="/nothing/here cannot be read: No such file"):
        read_credentials("/nothing/here", {"VPC_APIKEY": "k"})


def test_secret_is_not_shown(tmp_path: Path) -> None:
    """O-17: not even where an object is printed."""
    assert "swordfish" not in repr(read_credentials(write(tmp_path, "VPC_APIKEY=swordfish"), {}))


# -- tokens --


def test_token_is_renewed_before_its_end(tmp_path: Path) -> None:
    http, clock = Http(), ManualClock()
    http.token("one", 3600)
    made = login(tmp_path, http, "VPC_APIKEY=k", clock=clock)
    assert bearer(made) == bearer(made) == "one"
    clock.now += 3400
    http.token("two", 3600)
    assert bearer(made) == "two"
    assert len(http.sent) == 2


def test_refused(tmp_path: Path) -> None:
    """IV-1: with the words of IBM, without the key."""
    http = Http()
    http.answer({"errorCode": "BXNIM0415E", "errorMessage": "Provided API key could not be found."}, 400)
    with pytest.raises(
        LoginRefused, match=r"BXNIM0415E: Provided API key could not be found\.; correct .*ibm\.env"
    ) as caught:
        login(tmp_path, http, "VPC_APIKEY=swordfish").headers()
    assert "swordfish" not in str(caught.value)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_away(tmp_path: Path, status: int) -> None:
    http = Http()
    http.answer({"errorCode": "BXNIM0500E", "errorMessage": "later"}, status)
    with pytest.raises(CloudAway) as caught:
        login(tmp_path, http, "VPC_APIKEY=k").headers()
    assert not isinstance(caught.value, LoginRefused)


def test_no_answer(tmp_path: Path) -> None:
    http = Http()
    http.answers.append(NoAnswer("no answer from iam: timed out", maybe_done=True))
    with pytest.raises(CloudAway, match="login failed: no answer from iam") as caught:
        login(tmp_path, http, "VPC_APIKEY=k").headers()
    assert not caught.value.maybe_done


def test_odd_answer(tmp_path: Path) -> None:
    http = Http()
    http.answer(["html"])
    with pytest.raises(CloudAway, match="has no token"):
        login(tmp_path, http, "VPC_APIKEY=k").headers()


def test_client_id_and_scope(tmp_path: Path) -> None:
    """IV-1: all variables of the SDK for an API key."""
    http = Http()
    http.token("one")
    bearer(login(tmp_path, http, "VPC_APIKEY=k", "VPC_CLIENT_ID=bx", "VPC_CLIENT_SECRET=by", "VPC_SCOPE=ibm openid"))
    assert http.sent[0][2]["Authorization"] == f"Basic {base64.b64encode(b'bx:by').decode()}"
    assert form(http)["scope"] == "ibm openid"


def test_trusted_profile_of_an_api_key(tmp_path: Path) -> None:
    """IV-1: the API key takes over a trusted profile."""
    http = Http()
    http.token("of the key")
    http.token("of the profile", 900)
    lines = ("VPC_AUTH_TYPE=iamAssume", "VPC_APIKEY=k", "VPC_IAM_PROFILE_NAME=ci", "VPC_IAM_ACCOUNT_ID=a1")
    assert bearer(login(tmp_path, http, *lines)) == "of the profile"
    assert form(http, 1) == {
        "grant_type": f"{GRANT}assume",
        "access_token": "of the key",
        "profile_name": "ci",
        "account": "a1",
    }


def test_trusted_profile_of_a_container(tmp_path: Path) -> None:
    """IV-1: the token of the container is read for each login."""
    token = write(tmp_path, "a.b.c", name="token")
    http = Http()
    http.token("one")
    lines = ("VPC_AUTH_TYPE=container", f"VPC_CR_TOKEN_FILENAME={token}", "VPC_IAM_PROFILE_ID=IbmProfile-1")
    assert bearer(login(tmp_path, http, *lines)) == "one"
    assert form(http) == {"grant_type": f"{GRANT}cr-token", "cr_token": "a.b.c", "profile_id": "IbmProfile-1"}
    Path(token).unlink()
    with pytest.raises(LoginRefused, match="correct VPC_CR_TOKEN_FILENAME"):
        login(tmp_path, http, *lines).headers()


@pytest.mark.parametrize(
    ("line", "profile"),
    [
        ("VPC_IAM_PROFILE_CRN=crn:1", {"trusted_profile": {"crn": "crn:1"}}),
        ("VPC_IAM_PROFILE_ID=IbmProfile-1", {"trusted_profile": {"id": "IbmProfile-1"}}),
        ("# the default profile", {}),
    ],
)
def test_identity_of_an_instance(tmp_path: Path, line: str, profile: dict[str, Any]) -> None:
    """IV-1: no secret at all: the metadata service says who this instance is."""
    http = Http()
    http.token("identity", 300)
    http.token("one")
    assert bearer(login(tmp_path, http, "VPC_AUTH_TYPE=vpc", line)) == "one"
    (put, first, flavor, _, version), (post, second, headers, body, _) = http.sent
    base = "http://169.254.169.254/instance_identity/v1"
    assert (put, first, post, second) == ("PUT", f"{base}/token", "POST", f"{base}/iam_token")
    assert (flavor["Metadata-Flavor"], headers["Authorization"]) == ("ibm", "Bearer identity")
    assert version == {"version": "2022-03-01"}
    assert json.loads(body) == profile


@pytest.mark.parametrize("status", [404, 410, 429])
def test_identity_that_is_not_ready(tmp_path: Path, status: int) -> None:
    """IV-1 (today): nothing is to be corrected, and the next call asks again."""
    http = Http()
    http.answer({"errors": [{"code": "not_found", "message": "later"}]}, status)
    http.token("identity", 300)
    http.token("one")
    made = login(tmp_path, http, "VPC_AUTH_TYPE=vpc")
    with pytest.raises(CloudAway, match="not_found: later; the metadata service is asked again") as caught:
        made.headers()
    assert not isinstance(caught.value, LoginRefused)
    assert bearer(made) == "one"


def test_token_of_somebody_else(tmp_path: Path) -> None:
    """IV-1: a token that is kept valid in the file."""
    http, clock = Http(), ManualClock()
    made = login(tmp_path, http, "VPC_AUTH_TYPE=bearerToken", "VPC_BEARER_TOKEN=one", clock=clock)
    assert bearer(made) == "one"
    write(tmp_path, "VPC_AUTH_TYPE=bearerToken", "VPC_BEARER_TOKEN=two")
    clock.now += 120
    assert bearer(made) == "two"
    assert not http.sent


def test_no_login(tmp_path: Path) -> None:
    assert login(tmp_path, Http(), "VPC_AUTH_TYPE=noAuth").headers() == {}


def test_account() -> None:
    """IV-2: resource groups are made in the account that the token names."""
    payload = base64.urlsafe_b64encode(json.dumps({"account": {"bss": "abc"}}).encode()).rstrip(b"=").decode()
    assert account_of(f"head.{payload}.signature") == "abc"
    assert account_of("no token") == account_of("a.b.c") == account_of("") == ""

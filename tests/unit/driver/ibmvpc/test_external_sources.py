# SPDX-License-Identifier: Apache-2.0
"""Tests of `nodepool.driver.ibmvpc.login`: the IBM SDK for Python itself says what is right (IV-1)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ibm_cloud_sdk_core.get_authenticator import get_authenticator_from_environment
from ibm_cloud_sdk_core.utils import read_external_sources

from nodepool.driver.framework.cloud_errors import LoginRefused
from nodepool.driver.ibmvpc.login import VCAP_VARIABLE, external_sources, read_credentials

KEY = "VPC_APIKEY=of the {}\n"


@pytest.fixture(autouse=True)
def _nothing_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment of its own, in which there are three places for files."""
    for name in ("home", "here", "else"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for name in list(os.environ):
        if name.startswith("VPC_") or name in ("IBM_CREDENTIALS_FILE", VCAP_VARIABLE):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def service(name: str = "", **credentials: Any) -> dict[str, Any]:
    return {"name": name, "credentials": credentials}


VCAP = {
    "called so": {"other": [service("x", apikey="no"), service("vpc", apikey="yes")]},
    "of the kind": {"vpc": [service("a", iam_apikey="first"), service("b", apikey="second")]},
    "the name wins": {"vpc": [service("a", apikey="no")], "user-provided": [service("vpc", apikey="yes")]},
    "called so without credentials": {"x": [service("vpc"), service("vpc", apikey="yes")]},
    "both keys": {"vpc": [service(apikey="no", iam_apikey="yes")]},
    "password": {"vpc": [service(username="me", password="secret", apikey="no")]},
    "something else": {"vpc": [service(url="https://vpc")]},
    "none": {"other": [service("x", apikey="no")]},
    "empty": {"vpc": []},
    "no credentials": {"vpc": [{"name": "a"}]},
}


@pytest.mark.parametrize("kinds", VCAP.values(), ids=VCAP)
def test_services_of_a_platform(monkeypatch: pytest.MonkeyPatch, kinds: Mapping[str, Any]) -> None:
    """IV-1: the last place where it looks."""
    monkeypatch.setenv(VCAP_VARIABLE, json.dumps(kinds))
    found = external_sources("vpc", None, os.environ)
    assert found.values == (read_external_sources("vpc") or {})
    assert found.source == VCAP_VARIABLE


FILES = ("home", "here", "else")


@pytest.mark.parametrize("files", [(), ("home",), ("here",), ("home", "here"), FILES, ("else",)], ids=" ".join)
@pytest.mark.parametrize("environment", [{}, {"VPC_APIKEY": "of the environment"}, {"VPC_URL": "https://vpc/v1"}])
@pytest.mark.parametrize("vcap", [False, True])
@pytest.mark.parametrize("variable", [None, "", "else", "nowhere"])
def test_order(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    files: tuple[str, ...],
    environment: Mapping[str, str],
    vcap: bool,
    variable: str | None,
) -> None:
    """IV-1: file of the variable, in the present directory, at home; the environment; the platform."""
    for name in files:
        text = KEY.format(name) if name != "home" else "# VPC_APIKEY=\nKMS_APIKEY=other\n VPC_SCOPE=a=b \nVPC_X\n"
        (tmp_path / name / "ibm-credentials.env").write_text(text, encoding="utf-8")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if vcap:
        monkeypatch.setenv(VCAP_VARIABLE, json.dumps(VCAP["called so"]))
    if variable is not None:
        path = str(tmp_path / variable / "ibm-credentials.env") if variable else ""
        monkeypatch.setenv("IBM_CREDENTIALS_FILE", path)
    assert external_sources("vpc", None, os.environ).values == read_external_sources("vpc")


KINDS: tuple[Mapping[str, str], ...] = (
    {"VPC_APIKEY": "k"},
    {"VPC_AUTH_TYPE": "IAM", "VPC_APIKEY": "k"},
    {"VPC_AUTHTYPE": "iam", "VPC_APIKEY": "k"},
    {"VPC_AUTH_TYPE": "iamassume", "VPC_APIKEY": "k", "VPC_IAM_PROFILE_ID": "p"},
    {"VPC_AUTH_TYPE": "iamAssume", "VPC_APIKEY": "k", "VPC_IAM_PROFILE_NAME": "p", "VPC_IAM_ACCOUNT_ID": "a"},
    {"VPC_IAM_PROFILE_NAME": "p"},
    {"VPC_AUTH_TYPE": "Container", "VPC_IAM_PROFILE_ID": "p"},
    {"VPC_AUTH_TYPE": "vpc"},
    {"VPC_AUTH_TYPE": "VPC", "VPC_IAM_PROFILE_CRN": "crn"},
    {"VPC_AUTH_TYPE": "bearertoken", "VPC_BEARER_TOKEN": "t"},
    {"VPC_AUTH_TYPE": "noAuth"},
)


@pytest.mark.parametrize("environment", KINDS, ids=lambda given: "-".join(given.values()))
def test_kind_of_login(monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str]) -> None:
    """IV-1: the same variables, the same way to log in."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    wanted = get_authenticator_from_environment("vpc")
    assert wanted is not None
    assert read_credentials(None, os.environ).kind == wanted.authentication_type().lower()


@pytest.mark.parametrize("text", ["{", "[]", '{"vpc": [1]}', '{"vpc": 5}'])
def test_platform_that_says_something_else(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """IV-1: the SDK fails with an error of JSON or of Python; here it says what to do."""
    monkeypatch.setenv(VCAP_VARIABLE, text)
    with pytest.raises(LoginRefused, match="VCAP_SERVICES is not the JSON of services; correct it, or unset it"):
        external_sources("vpc", None, os.environ)


def test_password_of_a_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    """IV-1: no service of the public cloud takes one."""
    monkeypatch.setenv(VCAP_VARIABLE, json.dumps(VCAP["password"]))
    with pytest.raises(LoginRefused, match="VPC_AUTH_TYPE in VCAP_SERVICES is 'basic'; choose one of iam"):
        read_credentials(None, os.environ)

# SPDX-License-Identifier: Apache-2.0
"""Tokens of the simulated project, asked for with Google's own library."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from google.auth import compute_engine, identity_pool
from google.auth.compute_engine import _metadata
from google.auth.exceptions import RefreshError
from google.auth.transport.requests import AuthorizedSession, Request
from google.oauth2 import service_account

from simulators.gce import GceSimulator
from simulators.gce.links import PROJECT

SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]


@pytest.fixture
def simulator() -> Iterator[GceSimulator]:
    with GceSimulator() as made:
        yield made
        assert not made.state()["bugs"]


def status(simulator: GceSimulator, credentials: Any) -> int:
    """Of a list."""
    with AuthorizedSession(credentials, refresh_status_codes=()) as session:  # type: ignore[no-untyped-call]
        session.trust_env = False
        where = f"{simulator.url}/compute/v1/projects/{PROJECT}/zones/us-central1-a/instances"
        with session.get(where) as answer:
            return int(answer.status_code)


def load(path: Path, **changes: Any) -> Any:
    """The credentials of a file."""
    document = json.loads(path.read_text(encoding="utf-8")) | changes
    path.write_text(json.dumps(document), encoding="utf-8")
    kinds: dict[str, Any] = {
        "service_account": service_account.Credentials.from_service_account_file,
        "external_account": identity_pool.Credentials.from_file,
    }
    return kinds[document["type"]](str(path), scopes=SCOPES)


def test_key(simulator: GceSimulator, tmp_path: Path) -> None:
    """The key of the account is exchanged for a token, which ends."""
    credentials = load(simulator.write_key_file(tmp_path / "key.json"))
    assert status(simulator, credentials) == 200
    assert simulator.state()["calls"]["tokens.post"] == 1
    with simulator.cloud():
        simulator.application.tokens.end_all()
    assert status(simulator, credentials) == 401


def test_refused_keys(simulator: GceSimulator, tmp_path: Path) -> None:
    path = simulator.write_key_file(tmp_path / "key.json")
    with pytest.raises(RefreshError, match="account not found"):
        status(simulator, load(path, client_email="other@example.com"))
    simulator.change(errors=[{"operation": "tokens.post", "kind": "403", "message": "no"}])
    with pytest.raises(RefreshError):
        status(simulator, load(path))


def test_workload_identity(simulator: GceSimulator, tmp_path: Path) -> None:
    """A token of somebody else is exchanged, and the result for one of the account."""
    subject = tmp_path / "subject"
    subject.write_text("foreign", encoding="utf-8")
    with simulator.cloud() as cloud:
        email = cloud.email
    account = f"{simulator.url}/v1/projects/-/serviceAccounts/{email}:generateAccessToken"
    document = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/x",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": f"{simulator.url}/v1/token",
        "service_account_impersonation_url": account,
        "credential_source": {"file": str(subject)},
    }
    path = tmp_path / "identity.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    assert status(simulator, load(path)) == 200


def test_metadata_server(simulator: GceSimulator, monkeypatch: pytest.MonkeyPatch) -> None:
    host = simulator.url.removeprefix("http://")
    monkeypatch.setattr(_metadata, "_GCE_METADATA_HOST", host)
    assert status(simulator, compute_engine.Credentials()) == 200  # type: ignore[no-untyped-call]
    request = Request()
    assert _metadata.get_project_id(request) == PROJECT  # type: ignore[no-untyped-call]
    request.session.close()


@pytest.mark.parametrize("given", ["", "Bearer x", "Bearer a.b.c", "Basic x"])
def test_no_token(simulator: GceSimulator, given: str) -> None:
    with requests.Session() as session:
        session.trust_env = False
        where = f"{simulator.url}/compute/v1/projects/{PROJECT}/zones/us-central1-a/instances"
        with session.get(where, headers={"Authorization": given}) as answer:
            assert (answer.status_code, answer.json()["error"]["status"]) == (401, "UNAUTHENTICATED")

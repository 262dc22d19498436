# SPDX-License-Identifier: Apache-2.0
"""The file of ``auth-path``: who Nodepool is for Azure, and where Azure is (AZ-1).

It is JSON as ``az ad sp create-for-rbac --json-auth`` writes it. Unlike in Nodepool 11.0.0 its endpoints count, so that
clouds of governments work. Instead of ``clientSecret`` it may have ``clientCertificate`` (path of a PEM file with the
certificate and its key), ``federatedTokenFile`` (path of a file with a token of another identity provider), or
``managedIdentity: true`` (of the machine that Nodepool runs on; ``clientId`` is only needed if it has several).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from nodepool.driver.framework.cloud_errors import LoginRefused

LOGIN_URL: Final = "https://login.microsoftonline.com"
ARM_URL: Final = "https://management.azure.com"
#: Where a machine in Azure asks for tokens of its own identity.
IDENTITY_URL: Final = "http://169.254.169.254/metadata/identity/oauth2/token"
#: Ways to prove an identity: exactly one of them.
PROOFS: Final = ("clientSecret", "clientCertificate", "federatedTokenFile", "managedIdentity")


@dataclass(frozen=True)
class AuthFile:
    """What is in the file. ``login_url`` and ``arm_url`` have no slash at the end."""

    subscription_id: str
    tenant_id: str
    client_id: str
    login_url: str
    arm_url: str
    identity_url: str
    client_secret: str | None = None
    client_certificate: Path | None = None
    federated_token_file: Path | None = None

    def __repr__(self) -> str:
        # Not the secret.
        return f"AuthFile({self.subscription_id}, {self.client_id})"

    @property
    def managed(self) -> bool:
        """Is it the identity of the machine?"""
        return not (self.client_secret or self.client_certificate or self.federated_token_file)


def read_auth_file(path: str | None) -> AuthFile:
    """Read it. Blocks.

    :raises LoginRefused: it is missing, or says too little.
    """
    if not path:
        raise LoginRefused("there are no credentials; add auth-path to the provider")
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise LoginRefused(f"{path} cannot be read: {error.strerror}; correct auth-path or the file's mode") from None
    except (ValueError, RecursionError):
        raise LoginRefused(f"{path} is not JSON; write it with az ad sp create-for-rbac --json-auth") from None
    if not isinstance(data, dict):
        raise LoginRefused(f"{path} is not a JSON object; write it with az ad sp create-for-rbac --json-auth")
    return _checked(path, data)


def _checked(path: str, data: Mapping[str, Any]) -> AuthFile:
    proofs = [name for name in PROOFS if data.get(name)]
    if len(proofs) != 1:
        raise LoginRefused(f"{path} must have exactly one of {', '.join(PROOFS)}; add or remove some")
    needed = ["subscriptionId"] if proofs == ["managedIdentity"] else ["subscriptionId", "tenantId", "clientId"]
    missing = [name for name in needed if not isinstance(data.get(name), str) or not data[name]]
    if missing:
        raise LoginRefused(f"{path} has no {', '.join(missing)}; add it")

    def path_of(name: str) -> Path | None:
        # Beside the file, unless it is absolute.
        return Path(path).parent / str(data[name]) if data.get(name) else None

    return AuthFile(
        subscription_id=data["subscriptionId"],
        tenant_id=str(data.get("tenantId") or ""),
        client_id=str(data.get("clientId") or ""),
        login_url=_url(path, data, "activeDirectoryEndpointUrl", LOGIN_URL),
        arm_url=_url(path, data, "resourceManagerEndpointUrl", ARM_URL),
        identity_url=_url(path, data, "managedIdentityEndpointUrl", IDENTITY_URL),
        client_secret=data.get("clientSecret") or None,
        client_certificate=path_of("clientCertificate"),
        federated_token_file=path_of("federatedTokenFile"),
    )


def _url(path: str, data: Mapping[str, Any], name: str, default: str) -> str:
    found = data.get(name) or default
    if not isinstance(found, str) or urlsplit(found).scheme not in ("http", "https") or not urlsplit(found).hostname:
        raise LoginRefused(f"{name} in {path} is no address; correct it")
    return found.rstrip("/")

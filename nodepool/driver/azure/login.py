# SPDX-License-Identifier: Apache-2.0
"""Tokens of the Microsoft identity platform (AZ-1).

First the login (https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow has the calls),
then the file of ``auth-path``.
"""

from __future__ import annotations

import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.framework.cloud_errors import LoginRefused
from nodepool.driver.framework.http.rest_calls import TokenLogin, address_of, json_of_file, text_of_file

if TYPE_CHECKING:
    from nodepool.driver.framework.http.plain_http import PlainHttp

ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_IDENTITY_VERSION: Final = "2018-02-01"


class AzureLogin(TokenLogin):
    """Credentials of one provider.

    :param auth_path: file with the credentials; read again for each token, so that it may be replaced.
    """

    def __init__(self, provider: str, auth_path: str | None, http: PlainHttp) -> None:
        super().__init__(provider)
        self._auth_path = auth_path
        self._http = http
        #: As read last; replaced as a whole.
        self._account: AuthFile | None = None

    @property
    def account(self) -> AuthFile:
        """Subscription and endpoints. May block; raises LoginRefused."""
        return self._account or self._read()

    def ask(self) -> tuple[str, float]:
        account = self._read()
        call = _call_of_machine(account) if account.managed else _call(account)
        found = self.exchange(self._http, "correct the file of auth-path", *call, metadata=account.managed)
        return found["access_token"], found["expires_in"]

    def _read(self) -> AuthFile:
        self._account = read_auth_file(self._auth_path)
        return self._account


def _call(account: AuthFile) -> tuple[Any, ...]:
    """What is sent for a token. Raises LoginRefused."""
    url = f"{account.login_url}/{urllib.parse.quote(account.tenant_id)}/oauth2/v2.0/token"
    form = {"grant_type": "client_credentials", "client_id": account.client_id, "scope": f"{account.arm_url}/.default"}
    if account.client_secret:
        form["client_secret"] = account.client_secret
    else:
        assert account.federated_token_file is not None
        form["client_assertion_type"] = ASSERTION_TYPE
        form["client_assertion"] = text_of_file(account.federated_token_file, "federatedTokenFile").strip()
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    return "POST", url, headers, urllib.parse.urlencode(form).encode()


def _call_of_machine(account: AuthFile) -> tuple[Any, ...]:
    query = {"api-version": _IDENTITY_VERSION, "resource": account.arm_url}
    if account.client_id:
        query["client_id"] = account.client_id
    return "GET", account.identity_url, {"Metadata": "true"}, None, query


# The file of ``auth-path``: who Nodepool is for Azure, and where Azure is (AZ-1).
#
# It is JSON as ``az ad sp create-for-rbac --json-auth`` writes it. Unlike in Nodepool 11.0.0 its endpoints count, so
# that clouds of governments work. Instead of ``clientSecret`` it may have ``federatedTokenFile`` (path of a file with a
# token of another identity provider), or ``managedIdentity: true`` (of the machine that Nodepool runs on; ``clientId``
# is only needed if it has several).

LOGIN_URL: Final = "https://login.microsoftonline.com"
ARM_URL: Final = "https://management.azure.com"
#: Where a machine in Azure asks for tokens of its own identity.
IDENTITY_URL: Final = "http://169.254.169.254/metadata/identity/oauth2/token"
#: Ways to prove an identity: exactly one of them.
PROOFS: Final = ("clientSecret", "federatedTokenFile", "managedIdentity")


@dataclass(frozen=True)
class AuthFile:
    """What is in the file. ``login_url`` and ``arm_url`` have no slash at the end."""

    subscription_id: str
    tenant_id: str
    client_id: str
    login_url: str
    arm_url: str
    identity_url: str
    client_secret: str | None = field(default=None, repr=False)
    federated_token_file: Path | None = None

    @property
    def managed(self) -> bool:
        """Is it the identity of the machine?"""
        return not (self.client_secret or self.federated_token_file)


def read_auth_file(path: str | None) -> AuthFile:
    """Read it. Blocks.

    :raises LoginRefused: it is missing, or says too little.
    """
    if not path:
        raise LoginRefused("there are no credentials; add auth-path to the provider")
    data = json_of_file(path, "auth-path", "az ad sp create-for-rbac --json-auth")
    proofs = [name for name in PROOFS if data.get(name)]
    if len(proofs) != 1:
        raise LoginRefused(f"{path} must have exactly one of {', '.join(PROOFS)}; add or remove some")
    needed = ["subscriptionId"] if proofs == ["managedIdentity"] else ["subscriptionId", "tenantId", "clientId"]
    missing = [name for name in needed if not isinstance(data.get(name), str) or not data[name]]
    if missing:
        raise LoginRefused(f"{path} has no {', '.join(missing)}; add it")

    def url_of(name: str, usual: str) -> str:
        return address_of(data.get(name) or usual, name, path)

    token_file = data.get("federatedTokenFile")
    return AuthFile(
        subscription_id=data["subscriptionId"],
        tenant_id=str(data.get("tenantId") or ""),
        client_id=str(data.get("clientId") or ""),
        login_url=url_of("activeDirectoryEndpointUrl", LOGIN_URL),
        arm_url=url_of("resourceManagerEndpointUrl", ARM_URL),
        identity_url=url_of("managedIdentityEndpointUrl", IDENTITY_URL),
        client_secret=data.get("clientSecret") or None,
        # Beside the file, unless it is absolute.
        federated_token_file=Path(path).parent / str(token_file) if token_file else None,
    )

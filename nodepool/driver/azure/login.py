# SPDX-License-Identifier: Apache-2.0
"""`AzureLogin`: tokens of the Microsoft identity platform.

https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow has the calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from nodepool.clock import monotonic, wall_time
from nodepool.driver.azure.auth_file import AuthFile, read_auth_file
from nodepool.driver.framework.cloud_errors import CloudAway, LoginRefused
from nodepool.driver.framework.cloud_texts import one_line
from nodepool.driver.framework.http.token_login import TokenLogin, login_error

if TYPE_CHECKING:
    from nodepool.driver.framework.http.plain_http import HttpAnswer, PlainHttp

ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_IDENTITY_VERSION: Final = "2018-02-01"
_ASSERTION_SECONDS: Final = 600.0


class AzureLogin(TokenLogin):
    """Credentials of one provider.

    :param auth_path: file with the credentials; read again for each token, so that it may be replaced.
    """

    def __init__(
        self, provider: str, auth_path: str | None, http: PlainHttp, clock: Callable[[], float] = monotonic
    ) -> None:
        super().__init__(provider, clock)
        self._auth_path = auth_path
        self._http = http
        #: As read last; replaced as a whole.
        self._account: AuthFile | None = None

    @property
    def account(self) -> AuthFile:
        """Subscription and endpoints. May block; raises LoginRefused."""
        return self._account or self._read()

    def ask(self) -> tuple[str, float]:
        data = self._ask(self._read())
        try:
            return str(data["access_token"]), float(data["expires_in"])
        except (KeyError, TypeError, ValueError):
            raise CloudAway(
                f"Provider {self.provider}: the answer to the login has no token", maybe_done=False
            ) from None

    def _read(self) -> AuthFile:
        self._account = read_auth_file(self._auth_path)
        return self._account

    def _ask(self, account: AuthFile) -> Any:
        from nodepool.driver.framework.http.plain_http import NoAnswer

        head = f"Provider {self.provider}: login failed"
        try:
            answer = self._send_managed(account) if account.managed else self._send(account)
        except NoAnswer as error:
            raise CloudAway(f"{head}: {error}", maybe_done=False) from error
        try:
            data = answer.json()
        except (ValueError, RecursionError):
            data = None
        if answer.status == 200:
            return data
        told = data if isinstance(data, dict) else {}
        code = str(told.get("error") or answer.status)
        text = f"{head}: {code}: {one_line(str(told.get('error_description') or f'status {answer.status}'))}"
        raise login_error(text, answer, code, "correct the file of auth-path", metadata=account.managed)

    def _send(self, account: AuthFile) -> HttpAnswer:
        import urllib.parse

        url = f"{account.login_url}/{urllib.parse.quote(account.tenant_id)}/oauth2/v2.0/token"
        form = {
            "grant_type": "client_credentials",
            "client_id": account.client_id,
            "scope": f"{account.arm_url}/.default",
            **self._proof(account, url),
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        return self._http.send("POST", url, headers, urllib.parse.urlencode(form).encode())

    def _proof(self, account: AuthFile, url: str) -> dict[str, str]:
        if account.client_secret:
            return {"client_secret": account.client_secret}
        try:
            if account.federated_token_file:
                assertion = account.federated_token_file.read_text(encoding="utf-8").strip()
            else:
                from nodepool.driver.azure.client_assertion import client_assertion

                assert account.client_certificate is not None
                pem = account.client_certificate.read_bytes()
                assertion = client_assertion(pem, account.client_id, url, wall_time(), _ASSERTION_SECONDS)
        except (OSError, ValueError) as error:
            text = f"Provider {self.provider}: login failed: {error}; correct the file of auth-path"
            raise LoginRefused(text) from error
        return {"client_assertion_type": ASSERTION_TYPE, "client_assertion": assertion}

    def _send_managed(self, account: AuthFile) -> HttpAnswer:
        query = {"api-version": _IDENTITY_VERSION, "resource": account.arm_url}
        if account.client_id:
            query["client_id"] = account.client_id
        return self._http.send("GET", account.identity_url, {"Metadata": "true"}, query=query)

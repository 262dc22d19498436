# SPDX-License-Identifier: Apache-2.0
"""Tokens of IBM Cloud IAM (IV-1).

The IBM SDK for Python knows the ways to log in: which calls are made, of IAM or of the metadata service of an instance.
First the login, then the credentials, and where they are looked for.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import inspect
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import jwt

from nodepool.driver.framework.cloud_errors import CloudAway, LoginRefused, one_line
from nodepool.driver.framework.http.rest_calls import TokenLogin, address_of, text_of_file
from nodepool.driver.ibmvpc.types import errors_in
from nodepool.guard import ERRORS

if TYPE_CHECKING:
    from nodepool.driver.framework.http.plain_http import PlainHttp

#: How long a token is used that another program keeps valid, in seconds.
_BEARER_SECONDS: Final = 60.0
#: Ways to log in, in lower case: API key; API key that takes over a trusted profile; trusted profile of a container,
#: and of an instance; a token that another program keeps valid; none, for tests.
IAM: Final = "iam"
CONTAINER: Final = "container"
INSTANCE: Final = "vpc"
BEARER: Final = "bearertoken"
NONE: Final = "noauth"
#: Their classes in `ibm_cloud_sdk_core.authenticators`.
_AUTHENTICATORS: Final[Mapping[str, str]] = {
    IAM: "IAMAuthenticator",
    "iamassume": "IAMAssumeAuthenticator",
    CONTAINER: "ContainerAuthenticator",
    INSTANCE: "VPCInstanceAuthenticator",
    BEARER: "BearerTokenAuthenticator",
    NONE: "NoAuthAuthenticator",
}
#: Parameters of these classes that have other names than their variables.
_VARIABLES: Final[Mapping[str, str]] = {"url": "AUTH_URL", "service_version": "VPC_IMS_VERSION"}


class IbmLogin(TokenLogin):
    """Credentials of one provider.

    :param path: of ``credentials-file``. It, or what stands for it, is read again for each token, so that it may be
        replaced.
    """

    def __init__(self, provider: str, path: str | None, http: PlainHttp) -> None:
        super().__init__(provider)
        self._path = path
        self._http = http
        #: As read last; replaced as a whole.
        self._credentials: Credentials | None = None

    @property
    def credentials(self) -> Credentials:
        """Endpoints, and how to log in. May block; raises LoginRefused."""
        return self._credentials or self._read()

    def headers(self) -> Mapping[str, str]:
        """See `nodepool.driver.framework.http.rest_calls.RestLogin`."""
        return {} if self.credentials.kind == NONE else super().headers()

    def account_id(self) -> str:
        """The account that the token is for, as it says itself; "" = it does not. May block."""
        return account_of(self.headers().get("Authorization", "").removeprefix("Bearer "))

    def ask(self) -> tuple[str, float]:
        """See `TokenLogin`."""
        found = self._read()
        authenticator = authenticator_of(found)
        if found.kind == BEARER:
            return found.values["BEARER_TOKEN"], _BEARER_SECONDS
        manager = authenticator.token_manager
        for one in (manager, getattr(manager, "iam_delegate", manager)):
            # A private name: each other way has answers without bounds, and takes that of a proxy for IBM's.
            one._request = functools.partial(self._request, found)
        try:
            answer = manager.request_token()
        except CloudAway:
            raise
        except ERRORS as error:
            # Of a token of a container, for example, that cannot be read.
            raise LoginRefused(f"{one_line(str(error))}; correct {found.source}") from error
        return answer["access_token"], answer["expires_in"]

    def _read(self) -> Credentials:
        self._credentials = read_credentials(self._path)
        return self._credentials

    def _request(
        self,
        found: Credentials,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        params: Mapping[str, str] | None = None,
        data: Any = None,
        auth_tuple: tuple[str, str] | None = None,
        **_: Any,
    ) -> Any:
        """In place of that of the managers of tokens."""
        given = dict(headers)
        if auth_tuple:
            given["Authorization"] = f"Basic {base64.b64encode(':'.join(auth_tuple).encode()).decode()}"
        if isinstance(data, dict):
            data = urllib.parse.urlencode({name: value for name, value in data.items() if value is not None})
        call = (method, url, given, (data or "").encode() or None, params)
        return self.exchange(self._http, f"correct {found.source}", *call, metadata=found.kind == INSTANCE)

    def error_in(self, data: Any) -> tuple[str, str]:
        return next(iter(errors_in(data)), ("", ""))


def account_of(token: str) -> str:
    """The account in a token of IAM; "" = there is none. It is only used to name it to IBM."""
    try:
        return str(jwt.decode(token, options={"verify_signature": False})["account"]["bss"])
    except (jwt.PyJWTError, KeyError, TypeError):
        return ""


# Who Nodepool is for IBM Cloud, and where IBM Cloud is: as the IBM SDK for Python finds it for the service ``vpc``.
#
# https://github.com/IBM/python-sdk-core has the names, under Authentication. They stand in a file of lines
# ``NAME=value``, or in the environment. The file of ``credentials-file`` comes first, if it has anything for the
# service (IV-1): the SDK itself takes no path of a file, and hides one that it cannot read.

GROUPS_URL: Final = "https://resource-controller.cloud.ibm.com"


@dataclass(frozen=True)
class Credentials:
    """What was found. Addresses have no slash at the end.

    :param kind: such as `IAM`.
    :param source: the file, or the environment, for errors.
    :param values: without the name of the service, such as ``APIKEY``.
    :param auth_url: of IAM, or of the metadata service; "" = the usual one.
    :param vpc_url: of the API of VPC with its version; None = that of the region.
    """

    kind: str
    source: str
    values: Mapping[str, str] = field(repr=False)
    auth_url: str
    vpc_url: str | None
    groups_url: str


def authenticator_of(found: Credentials) -> Any:
    """The one of the SDK. Raises LoginRefused if the credentials say too little."""
    from ibm_cloud_sdk_core import authenticators

    make = getattr(authenticators, _AUTHENTICATORS[found.kind])
    values = {**found.values, "AUTH_URL": found.auth_url}
    # Certificates are always checked.
    names = inspect.signature(make).parameters.keys() - {"headers", "proxies", "disable_ssl_verification"}
    try:
        return make(**{name: values.get(_VARIABLES.get(name, name.upper())) or None for name in names})
    except (TypeError, ValueError) as error:
        text = f"{found.source} says too little for VPC_AUTH_TYPE={found.kind}, or too much: {error}; correct it"
        raise LoginRefused(text) from error


def read_credentials(path: str | None) -> Credentials:
    """Find and read them. Blocks.

    :param path: of ``credentials-file``; None = not given.
    :raises LoginRefused: there are none, or they make no sense.
    """
    lines = _lines_of(path) if path else {}
    source, values = str(path), _of_service(lines, "VPC")
    if not values:
        source, values = "the environment, or the file that it names", _found_by_the_sdk("vpc")
    if not values:
        where, remedy = (path, "add it to the file") if path else ("a file", "add credentials-file to the provider")
        text = f"there are no credentials for IBM Cloud: VPC_APIKEY is neither in {where} nor in the environment"
        raise LoginRefused(f"{text}; {remedy}")
    given = values.get("AUTH_TYPE") or values.get("AUTHTYPE") or (IAM if values.get("APIKEY") else CONTAINER)
    if given.lower() not in _AUTHENTICATORS:
        known = "iam, iamAssume, container, vpc, bearerToken"
        raise LoginRefused(f"VPC_AUTH_TYPE in {source} is {given!r}; choose one of {known}")
    groups = _of_service(lines, "RESOURCE_MANAGER") or _found_by_the_sdk("resource_manager")
    return Credentials(
        kind=given.lower(),
        source=source,
        values=values,
        auth_url=address_of(values.get("AUTH_URL"), "VPC_AUTH_URL", source),
        vpc_url=address_of(values.get("URL"), "VPC_URL", source) or None,
        groups_url=address_of(groups.get("URL") or GROUPS_URL, "RESOURCE_MANAGER_URL", source),
    )


def _lines_of(path: str) -> dict[str, str]:
    """What a file says, by name."""
    pairs = (line.strip().partition("=") for line in text_of_file(path, "credentials-file").splitlines())
    return {name: value for name, between, value in pairs if between}


def _of_service(lines: Mapping[str, str], service: str) -> dict[str, str]:
    return {name.removeprefix(f"{service}_"): value for name, value in lines.items() if name.startswith(f"{service}_")}


def _found_by_the_sdk(service: str) -> dict[str, str]:
    from ibm_cloud_sdk_core.utils import read_external_sources

    # Of a file that is no text. One that cannot be read is no error for it.
    with contextlib.suppress(ValueError):
        found: dict[str, str] = read_external_sources(service)
        return found
    return {}

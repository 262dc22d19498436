# SPDX-License-Identifier: Apache-2.0
"""Tokens of IBM Cloud IAM (IV-1).

https://cloud.ibm.com/apidocs/iam-identity-token-api has the calls, and https://cloud.ibm.com/apidocs/vpc-metadata those
of an instance that asks for its own identity. First the login, then the credentials, then where they are looked for.
"""

from __future__ import annotations

import base64
import json
import os
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import CloudAway, LoginRefused, one_line
from nodepool.driver.framework.http.rest_calls import TokenLogin, login_error

if TYPE_CHECKING:
    from nodepool.driver.framework.http.plain_http import HttpAnswer, PlainHttp

_GRANT: Final = "urn:ibm:params:oauth:grant-type:"
_METADATA_VERSION: Final = "2022-03-01"
#: How long a token of an instance is needed, and how long one is used that somebody else keeps valid.
_IDENTITY_SECONDS: Final = 300
_BEARER_SECONDS: Final = 60.0
_FORM: Final = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
_JSON: Final = {"Content-Type": "application/json", "Accept": "application/json", "Metadata-Flavor": "ibm"}


class IbmLogin(TokenLogin):
    """Credentials of one provider.

    :param path: of ``credentials-file``. It, or what stands for it, is read again for each token, so that it may be
        replaced.
    """

    def __init__(
        self, provider: str, path: str | None, http: PlainHttp, clock: Callable[[], float] = monotonic
    ) -> None:
        super().__init__(provider, clock)
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
        token = self.headers().get("Authorization", "").removeprefix("Bearer ")
        return account_of(token)

    def ask(self) -> tuple[str, float]:
        """See `TokenLogin`."""
        found = self._read()
        if found.kind == BEARER:
            return found.get("BEARER_TOKEN"), _BEARER_SECONDS
        if found.kind == INSTANCE:
            return self._token_in(self._of_instance(found))
        if found.kind == CONTAINER:
            profile = {"profile_id": found.get("IAM_PROFILE_ID"), "profile_name": found.get("IAM_PROFILE_NAME")}
            return self._token_in(self._grant(found, "cr-token", cr_token=_token_of_container(found), **profile))
        answer = self._token_in(self._grant(found, "apikey", apikey=found.get("APIKEY")))
        if found.kind != ASSUME:
            return answer
        return self._token_in(self._assume(found, answer[0]))

    # -- inside --

    def _read(self) -> Credentials:
        self._credentials = read_credentials(self._path, os.environ)
        return self._credentials

    def _grant(self, found: Credentials, grant: str, **form: str) -> Any:
        """Ask IAM. Empty values are left out."""
        headers = dict(_FORM)
        if found.get("CLIENT_ID") and found.get("CLIENT_SECRET"):
            pair = f"{found.get('CLIENT_ID')}:{found.get('CLIENT_SECRET')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        if found.get("SCOPE"):
            form["scope"] = found.get("SCOPE")
        return self._ask_iam(found, grant, form, headers)

    def _assume(self, found: Credentials, token: str) -> Any:
        """Take over a trusted profile."""
        form = {"access_token": token}
        if found.get("IAM_PROFILE_CRN"):
            form["profile_crn"] = found.get("IAM_PROFILE_CRN")
        elif found.get("IAM_PROFILE_ID"):
            form["profile_id"] = found.get("IAM_PROFILE_ID")
        else:
            form |= {"profile_name": found.get("IAM_PROFILE_NAME"), "account": found.get("IAM_ACCOUNT_ID")}
        return self._ask_iam(found, "assume", form, _FORM)

    def _ask_iam(self, found: Credentials, grant: str, form: Mapping[str, str], headers: Mapping[str, str]) -> Any:
        given = {"grant_type": _GRANT + grant, **{name: value for name, value in form.items() if value}}
        url = f"{found.auth_url}/identity/token"
        return self._send(found, "POST", url, headers, urllib.parse.urlencode(given).encode())

    def _of_instance(self, found: Credentials) -> Any:
        """Ask the metadata service who this instance is, and then IAM through it."""
        # Its name begins with the service's, and so does that of the variable.
        query = {"version": found.get("VPC_IMS_VERSION") or found.get("IMS_VERSION") or _METADATA_VERSION}
        base = f"{found.auth_url}/instance_identity/v1"
        body = json.dumps({"expires_in": _IDENTITY_SECONDS}).encode()
        token, _ = self._token_in(self._send(found, "PUT", f"{base}/token", _JSON, body, query))
        names = ("id", "crn", "name")
        given = {name: found.get(f"IAM_PROFILE_{name.upper()}") for name in names}
        profile = {name: value for name, value in given.items() if value}
        body = json.dumps({"trusted_profile": profile} if profile else {}).encode()
        headers = {**_JSON, "Authorization": f"Bearer {token}"}
        return self._send(found, "POST", f"{base}/iam_token", headers, body, query)

    def _send(
        self,
        found: Credentials,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        query: Mapping[str, str] | None = None,
    ) -> Any:
        from nodepool.driver.framework.http.plain_http import NoAnswer

        head = f"Provider {self.provider}: login failed"
        try:
            answer = self._http.send(method, url, headers, body, query)
        except NoAnswer as error:
            raise CloudAway(f"{head}: {error}", maybe_done=False) from error
        data = _data(answer)
        if answer.status in (200, 201):
            return data
        code, said = _error_in(data)
        text = f"{head}: {code or answer.status}: {one_line(said or f'status {answer.status}')}"
        code, metadata = code or str(answer.status), found.kind == INSTANCE
        raise login_error(text, answer, code, f"correct {found.source}", metadata=metadata)

    def _token_in(self, data: Any) -> tuple[str, float]:
        try:
            return str(data["access_token"]), float(data["expires_in"])
        except (KeyError, TypeError, ValueError):
            text = f"Provider {self.provider}: the answer to the login has no token"
            raise CloudAway(text, maybe_done=False) from None


def account_of(token: str) -> str:
    """The account in a token of IAM, which is a JWT; "" = there is none. It is only used to name it to IBM."""
    parts = token.split(".")
    try:
        payload = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return str(payload["account"]["bss"])
    except (IndexError, KeyError, TypeError, ValueError):
        return ""


def _token_of_container(found: Credentials) -> str:
    """What says which container this is. Blocks."""
    paths = [found.get("CR_TOKEN_FILENAME")] if found.get("CR_TOKEN_FILENAME") else list(TOKEN_FILES)
    for path in paths:
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except (OSError, ValueError):
            continue
    text = f"the token of the container cannot be read from {', '.join(paths)}; correct VPC_CR_TOKEN_FILENAME"
    raise LoginRefused(f"{text} in {found.source}")


def _data(answer: HttpAnswer) -> Any:
    try:
        return answer.json()
    except (ValueError, RecursionError):
        return None


def _error_in(data: Any) -> tuple[str, str]:
    """Code and text of an answer of IAM, or of the metadata service."""
    told = data if isinstance(data, dict) else {}
    errors = told.get("errors")
    if isinstance(errors, list) and errors and isinstance(errors[0], dict):
        told = errors[0]
    return str(told.get("errorCode") or told.get("code") or ""), str(
        told.get("errorMessage") or told.get("message") or ""
    )


# Who Nodepool is for IBM Cloud, and where IBM Cloud is: as the IBM SDK for Python finds it for the service ``vpc``.
#
# https://github.com/IBM/python-sdk-core has the names, under Authentication. They stand in a file of lines
# ``NAME=value``, or in the environment. The file is the one of ``credentials-file`` or ``IBM_CREDENTIALS_FILE``, or
# ``ibm-credentials.env`` in the current directory or at home. If the file has anything for the service, the environment
# does not count (IV-1).

IAM_URL: Final = "https://iam.cloud.ibm.com"
#: Where an instance asks for tokens of its own identity.
METADATA_URL: Final = "http://169.254.169.254"
RESOURCES_URL: Final = "https://resource-controller.cloud.ibm.com"
#: Where a container has a token that says what it is: the first one that is there.
TOKEN_FILES: Final = (
    "/var/run/secrets/tokens/vault-token",
    "/var/run/secrets/tokens/sa-token",
    "/var/run/secrets/codeengine.cloud.ibm.com/compute-resource-token/token",
)
#: Ways to log in, in lower case: API key; API key that takes over a trusted profile; trusted profile of a container,
#: and of an instance; a token that somebody else keeps valid; none, for tests.
IAM: Final = "iam"
ASSUME: Final = "iamassume"
CONTAINER: Final = "container"
INSTANCE: Final = "vpc"
BEARER: Final = "bearertoken"
NONE: Final = "noauth"
#: What each of them needs: one of the names in each row.
_NEEDED: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    IAM: (("APIKEY",),),
    ASSUME: (("APIKEY",), ("IAM_PROFILE_ID", "IAM_PROFILE_CRN", "IAM_PROFILE_NAME")),
    CONTAINER: (("IAM_PROFILE_ID", "IAM_PROFILE_NAME"),),
    INSTANCE: (),
    BEARER: (("BEARER_TOKEN",),),
    NONE: (),
}
_IDENTITY_PATH: Final = "/identity/token"


@dataclass(frozen=True)
class Credentials:
    """What was found. Addresses have no slash at the end.

    :param kind: such as `IAM`.
    :param source: the file, or the environment, for errors.
    :param values: without the name of the service, such as ``APIKEY``.
    :param vpc_url: of the API of VPC with its version; None = that of the region.
    """

    kind: str
    source: str
    values: Mapping[str, str] = field(repr=False)
    auth_url: str
    vpc_url: str | None
    groups_url: str
    resources_url: str

    def get(self, name: str) -> str:
        """A value; "" = it was not given."""
        return self.values.get(name, "")


def read_credentials(path: str | None, environment: Mapping[str, str]) -> Credentials:
    """Find and read them. Blocks.

    :param path: of ``credentials-file``; None = not given.
    :raises LoginRefused: there are none, or they say too little.
    """
    # The libraries look for each service on its own.
    found = external_sources("vpc", path, environment)
    values, source, others = found.values, found.source, found.others
    if not values:
        where = f"in {found.file}" if found.file is not None else "in a file of credentials"
        remedy = "add it to the file" if found.file is not None else "add credentials-file to the provider"
        raise LoginRefused(
            f"there are no credentials for IBM Cloud: VPC_APIKEY is neither {where} nor in the environment; {remedy}"
        )
    kind = _kind(values, source)
    default = METADATA_URL if kind == INSTANCE else IAM_URL
    auth_url = _url(source, "VPC_AUTH_URL", values.get("AUTH_URL") or default).removesuffix(_IDENTITY_PATH)
    vpc_url = values.get("URL")
    return Credentials(
        kind=kind,
        source=source,
        values=values,
        auth_url=auth_url,
        vpc_url=_url(source, "VPC_URL", vpc_url) if vpc_url else None,
        groups_url=_url(source, "RESOURCE_MANAGER_URL", others.get("RESOURCE_MANAGER_URL") or RESOURCES_URL),
        resources_url=_url(source, "RESOURCE_CONTROLLER_URL", others.get("RESOURCE_CONTROLLER_URL") or RESOURCES_URL),
    )


def _kind(values: Mapping[str, str], source: str) -> str:
    given = values.get("AUTH_TYPE") or values.get("AUTHTYPE")
    kind = (given or (IAM if values.get("APIKEY") else CONTAINER)).lower()
    if kind not in _NEEDED:
        known = "iam, iamAssume, container, vpc, bearerToken"
        raise LoginRefused(f"VPC_AUTH_TYPE in {source} is {given!r}; choose one of {known}")
    for names in _NEEDED[kind]:
        if not any(values.get(name) for name in names):
            told = " or ".join(f"VPC_{name}" for name in names)
            raise LoginRefused(f"{source} has no {told}, which VPC_AUTH_TYPE={given or kind} needs; add it")
    by_name = not values.get("IAM_PROFILE_ID") and not values.get("IAM_PROFILE_CRN")
    if kind == ASSUME and by_name and not values.get("IAM_ACCOUNT_ID"):
        raise LoginRefused(f"{source} has VPC_IAM_PROFILE_NAME without VPC_IAM_ACCOUNT_ID; add it")
    return kind


def _url(source: str, name: str, text: str) -> str:
    if urlsplit(text).scheme not in ("http", "https") or not urlsplit(text).hostname:
        raise LoginRefused(f"{name} in {source} is no address; correct it")
    return text.rstrip("/")


# Where the IBM SDK for Python looks for what is to be known of a service: files, the environment, and VCAP_SERVICES.
#
# https://github.com/IBM/ibm-cloud-sdk-common has the order, under Authentication. The first source that has anything
# for the service counts alone (IV-1).

FILE_VARIABLE: Final = "IBM_CREDENTIALS_FILE"
DEFAULT_FILE: Final = "ibm-credentials.env"
#: What a platform of the kind of Cloud Foundry says of the services of an application, as JSON.
VCAP_VARIABLE: Final = "VCAP_SERVICES"


class ExternalSources(NamedTuple):
    """What was found.

    :param values: of the service, without its name, such as ``APIKEY``; empty = nothing was found.
    :param source: the file or the variable that they are from, for errors.
    :param file: that was looked at; None = there is none. It has ``others``, also of other services.
    """

    values: Mapping[str, str]
    source: str
    file: Path | None
    others: Mapping[str, str]


def external_sources(service: str, path: str | None, environment: Mapping[str, str]) -> ExternalSources:
    """Look for them. Blocks.

    :param service: name, such as ``vpc``.
    :param path: of a file that the configuration names; None = it names none.
    :raises LoginRefused: that file cannot be read, or VCAP_SERVICES cannot be understood.
    """
    file = _file_of(path, environment)
    lines = {} if file is None else _lines_of(file, wanted=path is not None)
    others = {**environment, **lines}
    for source, values in ((str(file), lines), ("the environment", environment)):
        if found := _of_service(service, values):
            return ExternalSources(found, source, file, others)
    return ExternalSources(_of_vcap(service, environment.get(VCAP_VARIABLE, "")), VCAP_VARIABLE, file, others)


def _of_service(service: str, values: Mapping[str, str]) -> dict[str, str]:
    prefix = f"{service.upper()}_"
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}


def _file_of(path: str | None, environment: Mapping[str, str]) -> Path | None:
    """The file that counts; None = there is none."""
    if path:
        return Path(path)
    if FILE_VARIABLE in environment:
        # Nothing in it is no file, as for the libraries.
        return Path(environment[FILE_VARIABLE]) if environment[FILE_VARIABLE] else None
    places = (Path.cwd(), Path(environment["HOME"]) if environment.get("HOME") else Path.home())
    return next((place / DEFAULT_FILE for place in places if (place / DEFAULT_FILE).is_file()), None)


def _lines_of(path: Path, *, wanted: bool) -> dict[str, str]:
    """What a file says, by name.

    :param wanted: the configuration names it. Else one that cannot be read is no error, as for the libraries.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        if not wanted:
            return {}
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise LoginRefused(f"{path} cannot be read: {why}; correct credentials-file or the file's mode") from None
    pairs = (line.strip().partition("=") for line in lines)
    return {name: value for name, between, value in pairs if between and name}


def _of_vcap(service: str, text: str) -> dict[str, str]:
    """What VCAP_SERVICES says of an instance of a service: of the first one that is called so, else of the first one
    that is of the kind.
    """
    if not text:
        return {}
    try:
        kinds = json.loads(text)
        entries = [entry for kind in kinds.values() for entry in kind]
        named = [entry.get("credentials") for entry in entries if entry.get("name") == service]
        of_kind = [entry.get("credentials") for entry in kinds.get(service) or ()]
        found = next(filter(None, named), None) or next(iter(of_kind), None)
    except (ValueError, AttributeError, TypeError):
        raise LoginRefused(f"{VCAP_VARIABLE} is not the JSON of services; correct it, or unset it") from None
    return _as_values(found) if isinstance(found, dict) else {}


def _as_values(given: Mapping[str, Any]) -> dict[str, str]:
    """What stands there, by the names of variables."""
    if given.get("username") and given.get("password"):
        return {"AUTH_TYPE": "basic", "USERNAME": str(given["username"]), "PASSWORD": str(given["password"])}
    key = given.get("iam_apikey") or given.get("apikey")
    if key:
        return {"AUTH_TYPE": "iam", "APIKEY": str(key)}
    return {str(name): str(value) for name, value in given.items()}

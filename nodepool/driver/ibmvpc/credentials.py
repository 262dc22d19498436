# SPDX-License-Identifier: Apache-2.0
"""Who Nodepool is for IBM Cloud, and where IBM Cloud is: as the IBM SDK for Python finds it for the service ``vpc``.

https://github.com/IBM/python-sdk-core has the names, under Authentication. They stand in a file of lines
``NAME=value``, or in the environment. The file is the one of ``credentials-file`` or ``IBM_CREDENTIALS_FILE``, or
``ibm-credentials.env`` in the present directory or at home. If the file has anything for the service, the environment
does not count (IV-1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from nodepool.driver.framework.cloud_errors import LoginRefused
from nodepool.driver.ibmvpc.external_sources import external_sources

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

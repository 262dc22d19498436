# SPDX-License-Identifier: Apache-2.0
"""What `public_cloud` serves as Azure: the hosts, the older API of the released driver, and a file of credentials."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlencode

from benchmarks.support.public_cloud import Translation

HOSTS: Final = ("login.microsoftonline.com", "management.azure.com")
#: The older endpoint for tokens, which the released driver asks.
_OLD_TOKENS, _TOKENS = "/oauth2/token", "/oauth2/v2.0/token"


class AzureTranslation(Translation):
    """Tokens and network interfaces as the released driver knows them."""

    def request(self, path: str, body: bytes) -> tuple[str, bytes]:
        if _is_old(path):
            return path.replace(_OLD_TOKENS, _TOKENS), _with_scope(body)
        return path, body

    def answer(self, method: str, path: str, content: bytes) -> bytes:
        if _is_old(path):
            return _with_end(content)
        if method == "GET" and "/networkinterfaces" in path.lower():
            return _with_versions(content)
        return content


def _is_old(path: str) -> bool:
    return path.partition("?")[0].endswith(_OLD_TOKENS)


def _with_scope(form: bytes) -> bytes:
    """The older endpoint has a resource in place of a scope."""
    given = {name: values[0] for name, values in parse_qs(form.decode()).items()}
    resource = given.pop("resource", "https://management.azure.com/")
    return urlencode({"scope": f"{resource.rstrip('/')}/.default", **given}).encode()


def _with_end(answer: bytes) -> bytes:
    """The older endpoint tells when a token ends, and all numbers as texts."""
    found = json.loads(answer)
    return json.dumps(
        {**found, "expires_in": str(found["expires_in"]), "expires_on": str(int(time.time()) + 3600)}
    ).encode()


def _with_versions(answer: bytes) -> bytes:
    """In lists of the version of 2020 an interface has its addresses, of which the released driver reads the family."""
    found = json.loads(answer)
    for interface in found.get("value", [found]):
        for configuration in interface["properties"]["ipConfigurations"]:
            properties = configuration["properties"]
            if "publicIPAddress" in properties:
                version = {"publicIPAddressVersion": properties["privateIPAddressVersion"]}
                properties["publicIPAddress"] |= {
                    "name": properties["publicIPAddress"]["id"].rpartition("/")[2],
                    "type": "Microsoft.Network/publicIPAddresses",
                    "properties": {"provisioningState": "Succeeded", **version},
                }
    return json.dumps(found).encode()


def write_public_auth_file(path: Path, private: Path, url: str) -> Path:
    """The credentials of a file, with the address of `public_cloud`; the released launcher does not read that."""
    given = json.loads(private.read_text(encoding="utf-8"))
    addresses = {name: url for name in given if "Endpoint" in name}
    path.write_text(json.dumps({**given, **addresses}), encoding="utf-8")
    return path

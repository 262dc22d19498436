# SPDX-License-Identifier: Apache-2.0
"""Where the IBM SDK for Python looks for what is to be known of a service: files, the environment, and VCAP_SERVICES.

https://github.com/IBM/ibm-cloud-sdk-common has the order, under Authentication. The first source that has anything for
the service counts alone (IV-1).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from nodepool.driver.framework.cloud_errors import LoginRefused

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

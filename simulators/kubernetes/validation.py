# SPDX-License-Identifier: Apache-2.0
"""What the API server refuses, whoever asks: names, labels and pods that cannot be."""

from __future__ import annotations

import re
from typing import Any

from simulators.kubernetes import quantities
from simulators.kubernetes.errors import Refused, invalid
from simulators.kubernetes.kinds import (
    BINDINGS,
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    NAMESPACES,
    PODS,
    ROLES,
    ObjectKind,
)

Json = dict[str, Any]

_DNS_LABEL = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
_DNS_NAME = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_VALUE = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$")
_LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_NAME_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_KEY_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def check_object(kind: ObjectKind, content: Json) -> None:
    """Refuses what cannot be stored.

    :raises Refused: 400 or 422.
    """
    metadata = content["metadata"]
    name = metadata["name"]
    for field in ("labels", "annotations"):
        for key, value in (metadata.get(field) or {}).items():
            if not isinstance(value, str):
                raise Refused(
                    400,
                    f'{kind.name} in version "v1" cannot be handled as a {kind.name}: json: cannot unmarshal '
                    f"{type(value).__name__} into Go struct field ObjectMeta.metadata.{field} of type string",
                )
            _check_pair(kind, name, field, key, value)
    _check_name(kind, name)
    if kind is PODS:
        check_pod(content)


def _check_name(kind: ObjectKind, name: str) -> None:
    if kind in (ROLES, BINDINGS, CLUSTER_ROLES, CLUSTER_BINDINGS):
        if not name or "/" in name or "%" in name or name in (".", ".."):
            raise invalid(kind, name, "metadata.name", f"Invalid value: \"{name}\": may not contain '/' or '%'")
        return
    form, text, most = (_DNS_LABEL, _LABEL_TEXT, 63) if kind is NAMESPACES else (_DNS_NAME, _NAME_TEXT, 253)
    if not name:
        raise invalid(kind, name, "metadata.name", "Required value: name or generateName is required", missing=True)
    if len(name) > most:
        text = f'Invalid value: "{name}": must be no more than {most} characters'
        raise invalid(kind, name, "metadata.name", text)
    if not form.match(name):
        raise invalid(kind, name, "metadata.name", f'Invalid value: "{name}": {text}')


def _check_pair(kind: ObjectKind, name: str, field: str, key: str, value: str) -> None:
    prefix, slash, part = key.rpartition("/")
    if not part or not _VALUE.match(part) or len(part) > 63 or (slash and not _DNS_NAME.match(prefix)):
        raise invalid(kind, name, f"metadata.{field}", f'Invalid value: "{key}": {_KEY_TEXT}')
    if field != "labels":
        return
    if len(value) > 63:
        raise invalid(kind, name, "metadata.labels", f'Invalid value: "{value}": must be no more than 63 characters')
    if not _VALUE.match(value):
        raise invalid(kind, name, "metadata.labels", f'Invalid value: "{value}": {_VALUE_TEXT}')


def check_pod(content: Json) -> None:
    """Refuses a pod that no node could run.

    :raises Refused: 400 or 422.
    """
    name = content["metadata"]["name"]
    spec = content.get("spec") or {}
    containers = spec.get("containers")
    if not containers:
        raise invalid(PODS, name, "spec.containers", "Required value", missing=True)
    policy = spec.get("restartPolicy", "Always")
    if policy not in ("Always", "OnFailure", "Never"):
        text = f'Unsupported value: "{policy}": supported values: "Always", "OnFailure", "Never"'
        raise invalid(PODS, name, "spec.restartPolicy", text)
    volumes = {volume.get("name") for volume in spec.get("volumes") or []}
    for number, container in enumerate(containers):
        _check_container(name, f"spec.containers[{number}]", container, volumes)


def _check_container(pod: str, path: str, container: Json, volumes: set[Any]) -> None:
    if not container.get("name"):
        raise invalid(PODS, pod, f"{path}.name", "Required value", missing=True)
    if not _DNS_LABEL.match(container["name"]) or len(container["name"]) > 63:
        raise invalid(PODS, pod, f"{path}.name", f'Invalid value: "{container["name"]}": {_LABEL_TEXT}')
    if not container.get("image"):
        raise invalid(PODS, pod, f"{path}.image", "Required value", missing=True)
    pull = container.get("imagePullPolicy", "Always")
    if pull not in ("Always", "IfNotPresent", "Never"):
        text = f'Unsupported value: "{pull}": supported values: "Always", "IfNotPresent", "Never"'
        raise invalid(PODS, pod, f"{path}.imagePullPolicy", text)
    for number, mount in enumerate(container.get("volumeMounts") or []):
        if mount.get("name") not in volumes:
            raise invalid(PODS, pod, f"{path}.volumeMounts[{number}].name", f'Not found: "{mount.get("name")}"')
    resources = container.get("resources") or {}
    amounts: dict[str, dict[str, Any]] = {}
    for group in ("requests", "limits"):
        amounts[group] = {}
        for resource, amount in (resources.get(group) or {}).items():
            try:
                amounts[group][resource] = quantities.parse(amount)
            except ValueError as error:
                text = f'Pod in version "v1" cannot be handled as a Pod: {error}'
                raise Refused(400, text) from None
    for resource, amount in amounts["requests"].items():
        limit = amounts["limits"].get(resource)
        if limit is not None and amount > limit:
            text = f'Invalid value: "{resources["requests"][resource]}": must be less than or equal to {resource} limit'
            raise invalid(PODS, pod, f"{path}.resources.requests", text)

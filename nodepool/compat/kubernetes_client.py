# SPDX-License-Identifier: Apache-2.0
"""The module `nodepool.driver.utils_k8s` of 11.0.0. The library ``kubernetes`` is the driver's: it installs it."""

from __future__ import annotations

import base64
import importlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any


def get_client(
    log: logging.Logger, context: str | None, extra_client_constructor: Callable[[Any], Any] | None = None
) -> tuple[str | None, str | None, Any, Any]:
    """The client of a cluster, as the usual files say, else as a pod in it is told; blocks for files.

    :param context: in the files; None = the current one.
    :param extra_client_constructor: makes another client from the first one's ``ApiClient``.
    :return: the bearer token of the context; its CA in base64; the client of the core API; the other client. All None
        if nothing says how to connect, which is logged.
    """
    config = importlib.import_module("kubernetes.config")
    client = importlib.import_module("kubernetes.client")
    try:
        api_client = _api_client(config, client, context)
    except config.ConfigException as error:
        log.error("Kubernetes context %s cannot be used: %s", context, error)
        return None, None, None, None
    token, ca = _credentials(api_client.configuration)
    other = None if extra_client_constructor is None else extra_client_constructor(api_client)
    return token, ca, client.CoreV1Api(api_client), other


def _api_client(config: Any, client: Any, context: str | None) -> Any:
    try:
        return config.new_client_from_config(context=context)
    except FileNotFoundError:
        missing: Exception | None = None
    except config.ConfigException as error:
        # Without files there is still the pod that we may run in.
        if context is not None:
            raise
        missing = error
    configuration = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException as error:
        raise missing or error from None
    return client.ApiClient(configuration)


def _credentials(configuration: Any) -> tuple[str | None, str | None]:
    keys = configuration.api_key
    # Release 37 of the library calls it otherwise.
    token = keys.get("authorization") or keys.get("BearerToken")
    path = configuration.ssl_ca_cert
    ca = base64.b64encode(Path(path).read_bytes()).decode("ascii") if path else None
    return (token.split()[-1] if token else None), ca

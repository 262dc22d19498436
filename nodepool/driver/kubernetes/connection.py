# SPDX-License-Identifier: Apache-2.0
"""`ClusterConnection`: how to reach a cluster, and who we are there (KU-1).

A kubeconfig says it, or the launcher's own pod.

Files with certificates and tokens are read again when they change, and when the cluster refuses the credentials.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from nodepool.clock import monotonic
from nodepool.driver.framework.cloud_errors import LoginRefused, one_line
from nodepool.driver.framework.fact import Fact
from nodepool.driver.kubernetes.access import ClusterAccess

#: Between two looks at the files.
LOOK_SECONDS: Final = 5.0
#: Connections that are kept. More may be open at once.
KEPT_CONNECTIONS: Final = 32
#: Where a pod finds the token and the certificate of its own account.
ACCOUNT_FILES: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def kubeconfig_path() -> str:
    """What ``KUBECONFIG`` says, else the default."""
    return os.environ.get("KUBECONFIG") or "~/.kube/config"


def _named_files(path: str) -> Iterator[str]:
    """Files that a kubeconfig names."""
    import yaml

    for part in path.split(os.pathsep):
        file = Path(part).expanduser()
        yield str(file)
        try:
            found = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        except (OSError, ValueError, yaml.YAMLError):
            # Whoever loads it tells.
            continue
        for kind, keys in (("clusters", ("certificate-authority",)), ("users", ("tokenFile", "client-certificate"))):
            for entry in found.get(kind) or () if isinstance(found, dict) else ():
                section = (entry.get(kind[:-1]) or {}) if isinstance(entry, dict) else {}
                for key in keys:
                    if section.get(key):
                        yield str(file.parent / str(section[key]))


def _signature(files: Iterable[str]) -> tuple[Any, ...]:
    """Changes when a file does."""
    found: list[Any] = []
    for name in files:
        try:
            stat = os.stat(name)
        except OSError:
            found.append(None)
        else:
            found.append((stat.st_mtime_ns, stat.st_ino, stat.st_size))
    return tuple(found)


class _Loaded(NamedTuple):
    """What was read from files.

    :param signature: of the files, see `_signature`.
    :param refusals: how often credentials had been refused before.
    """

    access: ClusterAccess
    signature: tuple[Any, ...]
    refusals: int


class ClusterConnection:
    """Access to one cluster. Thread-safe; of those who ask at the same time one reads the files, without a lock.

    :param provider: its name, for texts.
    :param context: of the kubeconfig; None = the current one, or without a kubeconfig the cluster that we run in.
    """

    def __init__(self, provider: str, context: str | None, clock: Callable[[], float] = monotonic) -> None:
        self.provider = provider
        self.context = context
        self._current = Fact(self._look, clock)
        #: What was loaded last, and the state of its files then. Of the thread that looks.
        self._loaded: _Loaded | None = None
        #: How often credentials were refused: what was loaded before the last time is not used again.
        self._refusals = 0

    def access(self, refused: ClusterAccess | None = None) -> ClusterAccess:
        """How to call the cluster now. Reads files, if they have changed; blocks then.

        :param refused: the cluster does not take this one any more: if it is the latest, the files are read anew.
        :raises LoginRefused: the kubeconfig cannot be used.
        """
        if refused is not None and self._current.known(2 * LOOK_SECONDS) is refused:
            self._refusals += 1
            self._current.clear()
        return self._current.get(LOOK_SECONDS)

    def _look(self) -> ClusterAccess:
        loaded, refusals = self._loaded, self._refusals
        if loaded is None or loaded.refusals != refusals or _signature(loaded.access.files) != loaded.signature:
            access = self._load()
            loaded = self._loaded = _Loaded(access, _signature(access.files), refusals)
        return loaded.access

    def _load(self) -> ClusterAccess:
        from kubernetes import client
        from kubernetes.config import ConfigException

        settings = client.Configuration()
        settings.retries = False
        settings.connection_pool_maxsize = KEPT_CONNECTIONS
        path = kubeconfig_path()
        inside = self.context is None and not _is_there(path)
        try:
            files = _load_own(settings) if inside else _load_file(settings, path, self.context)
        except (ConfigException, OSError, ValueError, KeyError, TypeError) as error:
            trouble = f"{_trouble(path, self.context, inside)}: {one_line(str(error))}"
            raise LoginRefused(f"Provider {self.provider}: {trouble}; {_remedy(inside)}") from None
        more = (settings.ssl_ca_cert, settings.cert_file, settings.key_file)
        files = tuple(dict.fromkeys([*files, *(name for name in more if name)]))
        return ClusterAccess(settings, files)


def _is_there(path: str) -> bool:
    return any(
        file.is_file() and file.stat().st_size for file in (Path(p).expanduser() for p in path.split(os.pathsep))
    )


def _load_own(settings: Any) -> tuple[str, ...]:
    from kubernetes.config.incluster_config import InClusterConfigLoader

    token, authority = str(ACCOUNT_FILES / "token"), str(ACCOUNT_FILES / "ca.crt")
    loader: Any = InClusterConfigLoader
    loader(token_filename=token, cert_filename=authority).load_and_set(settings)
    return (token, authority)


def _load_file(settings: Any, path: str, context: str | None) -> tuple[str, ...]:
    from kubernetes import config

    load: Any = config.load_kube_config
    load(config_file=path, context=context, client_configuration=settings, persist_config=False)
    return tuple(_named_files(path))


def _remedy(inside: bool) -> str:
    return "write a kubeconfig, or set KUBECONFIG" if inside else "correct context of the provider, or the kubeconfig"


def _trouble(path: str, context: str | None, inside: bool) -> str:
    if inside:
        return f"there is no kubeconfig at {path}, and the launcher does not run in a cluster"
    return f"the kubeconfig {path} cannot be used" + (f" with the context {context!r}" if context else "")

# SPDX-License-Identifier: Apache-2.0
"""`ClusterConnection`: how to reach a cluster, and who we are there (KU-1).

A kubeconfig says it, or the launcher's own pod. The package ``kubernetes`` makes the connections: a kubeconfig has
authorities, client certificates, the server's name, a proxy, or no verification, for each cluster.

First how calls are made, and a kubeconfig is read for them, then what it says (`ClusterAccess`).

Files with certificates and tokens are read again when they change, and when the cluster refuses the credentials.
"""

from __future__ import annotations

import base64
import contextlib
import os
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from nodepool.driver.framework.cloud_errors import LoginRefused, one_line
from nodepool.driver.framework.fact import Fact
from nodepool.driver.framework.http.rest_calls import HttpCalls

if TYPE_CHECKING:
    from nodepool.driver.framework.http.plain_http import Body, HttpAnswer

CONNECT_SECONDS: Final = 10.0
READ_SECONDS: Final = 30.0
#: Without an event or a bookmark for so long a watch is dead. The API sends bookmarks about once a minute.
SILENCE_SECONDS: Final = 90.0

#: Between two looks at the files.
LOOK_SECONDS: Final = 5.0
_ACCEPT: Final = {"Accept": "application/json"}
#: Connections that are kept. More may be open at once.
KEPT_CONNECTIONS: Final = 32
#: Where a pod finds the token and the certificate of its own account.
ACCOUNT_FILES: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def _named_files(path: str) -> Iterator[str]:
    """A kubeconfig, and files with tokens that it names. Its settings have those with certificates."""
    import yaml

    for part in path.split(os.pathsep):
        file = Path(part).expanduser()
        yield str(file)
        # Who loads it tells what is wrong with it.
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, yaml.YAMLError):
            for entry in yaml.safe_load(file.read_text(encoding="utf-8")).get("users") or ():
                if token := (entry.get("user") or {}).get("tokenFile"):
                    yield str(file.parent / str(token))


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


class ClusterConnection(HttpCalls):
    """Access to one cluster. Thread-safe; of those who ask at the same time one reads the files, without a lock.

    :param provider: its name, for texts.
    :param context: of the kubeconfig; None = the current one, or without a kubeconfig the cluster that we run in.
    """

    def __init__(self, provider: str, context: str | None) -> None:
        self.provider = provider
        self.context = context
        self._current = Fact(self._look)
        #: What was loaded last, the signature of its files, and `_refusals` then. Of the thread that looks.
        self._loaded: tuple[ClusterAccess, tuple[Any, ...], int] | None = None
        #: How often credentials were refused: what was loaded before the last time is not used again.
        self._refusals = 0

    def access(self) -> ClusterAccess:
        """How to call the cluster now. Reads files, if they have changed; blocks then.

        :raises LoginRefused: the kubeconfig cannot be used.
        """
        return self._current.get(LOOK_SECONDS)

    # -- for `RestCalls`: the login, and calls --

    def headers(self) -> Mapping[str, str]:
        """Who we are, if a header says it. May block. Raises LoginRefused."""
        return self.access().headers()

    def refused(self, headers: Mapping[str, str]) -> None:
        """The cluster does not take these any more: if they are the latest, the files are read anew."""
        known = self._current.known(2 * LOOK_SECONDS)
        if known is not None and known.headers() == headers:
            self._refusals += 1
            self._current.clear()

    def send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: Body = None,
        query: Mapping[str, Any] | None = None,
        seconds: float = READ_SECONDS,
    ) -> HttpAnswer:
        """Make one call, with a body of bytes; blocks.

        :param url: path of the API.
        :raises NoAnswer: there is none.
        """
        import urllib3

        from nodepool.driver.framework.http.plain_http import answered, exchange

        access = self.access()
        target = f"{access.host}{url}?{urllib.parse.urlencode(query)}" if query else f"{access.host}{url}"
        timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=seconds)
        with answered(target):
            return exchange(access.calls, method, target, {**_ACCEPT, **headers}, body, timeout)

    def stream(self, path: str, headers: Mapping[str, str]) -> Any:
        """Begin a call whose answer goes on for minutes: a response of urllib3, of any status. Raises NoAnswer."""
        import urllib3

        from nodepool.driver.framework.http.plain_http import answered

        access = self.access()
        timeout = urllib3.Timeout(connect=CONNECT_SECONDS, read=SILENCE_SECONDS)
        given: dict[str, Any] = {"timeout": timeout, "retries": False, "redirect": False, "preload_content": False}
        with answered(access.host + path):
            return access.streams.request("GET", access.host + path, headers={**_ACCEPT, **headers}, **given)

    def close(self) -> None:
        """Connections close with their last user."""

    # -- inside --

    def _look(self) -> ClusterAccess:
        if self._loaded is not None:
            access, signature, refusals = self._loaded
            if refusals == self._refusals and signature == _signature(access.files):
                return access
        refusals = self._refusals
        access = self._load()
        self._loaded = access, _signature(access.files), refusals
        return access

    def _load(self) -> ClusterAccess:
        from kubernetes import client, config
        from kubernetes.config.incluster_config import InClusterConfigLoader

        # They have no type hints.
        load: Any = config.load_kube_config
        loader: Any = InClusterConfigLoader
        settings = client.Configuration()
        settings.retries = False
        settings.connection_pool_maxsize = KEPT_CONNECTIONS
        path = os.environ.get("KUBECONFIG") or "~/.kube/config"
        inside = self.context is None and not _is_there(path)
        files = [str(ACCOUNT_FILES / "token"), str(ACCOUNT_FILES / "ca.crt")]
        try:
            if inside:
                loader(token_filename=files[0], cert_filename=files[1]).load_and_set(settings)
            else:
                load(config_file=path, context=self.context, client_configuration=settings, persist_config=False)
                files = [*_named_files(path)]
        except (config.ConfigException, OSError, ValueError, KeyError, TypeError) as error:
            where = f" with the context {self.context!r}" if self.context else ""
            trouble = f"the kubeconfig {path} cannot be used{where}"
            remedy = "correct context of the provider, or the kubeconfig"
            if inside:
                trouble = f"there is no kubeconfig at {path}, and the launcher does not run in a cluster"
                remedy = "write a kubeconfig, or set KUBECONFIG"
            raise LoginRefused(f"Provider {self.provider}: {trouble}: {one_line(str(error))}; {remedy}") from None
        more = (settings.ssl_ca_cert, settings.cert_file, settings.key_file)
        return ClusterAccess(settings, tuple(dict.fromkeys([*files, *(name for name in more if name)])))


def _is_there(path: str) -> bool:
    return any(
        file.is_file() and file.stat().st_size for file in (Path(p).expanduser() for p in path.split(os.pathsep))
    )


# `ClusterAccess`: what a kubeconfig says of a cluster, and the connections that are made by it.


#: Seconds for which the identity is kept: the package ``kubernetes`` works out all its settings anew each time, which
#: takes 50 us.
IDENTITY_SECONDS: Final = 1.0


class ClusterAccess:
    """What is needed for a call. Thread-safe.

    :param settings: the ``Configuration`` of the package ``kubernetes``.
    :param files: that it was made from.
    """

    def __init__(self, settings: Any, files: tuple[str, ...]) -> None:
        from kubernetes import client

        from nodepool.driver.framework.http.plain_http import POOLS

        self.settings = settings
        self.files = files
        self.host = str(settings.host).rstrip("/")
        self._identity: Fact[dict[str, str]] = Fact(self._ask_who_we_are)
        #: Pools of urllib3, with the certificates and the proxy of the cluster. Those for plain calls bound the size
        #: and the time of each answer; a stream has no bounds.
        make: Any = client.ApiClient
        self.streams = make(settings).rest_client.pool_manager
        self.calls = make(settings).rest_client.pool_manager
        self.calls.pool_classes_by_scheme = POOLS

    @property
    def skip_tls(self) -> bool:
        return not self.settings.verify_ssl

    def headers(self) -> dict[str, str]:
        """Who we are, if a header says it. A plugin may be run, which blocks."""
        return self._identity.get(IDENTITY_SECONDS)

    def _ask_who_we_are(self) -> dict[str, str]:
        settings = (one for one in self.settings.auth_settings().values() if one.get("in") == "header")
        return {str(one["key"]): str(one["value"]) for one in settings if one.get("value")}

    def bearer_token(self) -> str | None:
        """The token, without the word before it; None = who we are is stated by a certificate."""
        value = next((text for key, text in self.headers().items() if key.lower() == "authorization"), "")
        kind, _, token = value.partition(" ")
        return token.strip() if kind.lower() == "bearer" and token.strip() else None

    def authority(self) -> str | None:
        """The certificate of the cluster's authority, in base64; None = the system's."""
        path = self.settings.ssl_ca_cert
        return base64.b64encode(Path(path).read_bytes()).decode() if path else None

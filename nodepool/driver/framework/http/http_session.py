# SPDX-License-Identifier: Apache-2.0
"""`HttpSession`: a session of requests whose calls to a cloud cost less.

A call of requests looks at the whole environment for proxies, and joins the settings of the session with its own, each
time. For the calls to one cloud nothing of that changes from one to the next. Only public names of requests
are used, and a call that is not of the known kind takes the way of requests.

Imported when a provider is made, because requests takes long to import.
"""

from __future__ import annotations

import urllib.parse
from typing import Any, Final

import requests
from requests.cookies import extract_cookies_to_jar
from requests.structures import CaseInsensitiveDict
from requests.utils import get_auth_from_url

#: Arguments of an ordinary call.
_KNOWN: Final = frozenset({"allow_redirects", "headers", "params", "data", "timeout", "verify", "cert", "stream"})


def log_in_as_told(request: Any) -> Any:
    """For ``auth`` of a session: without any, requests looks for a netrc file at each call.

    A password from there is not meant for a cloud. One in the address itself is sent, as without this: a proxy before
    the cloud may ask for it.
    """
    if "@" in request.url:
        found = get_auth_from_url(request.url)
        return requests.auth.HTTPBasicAuth(*found)(request) if any(found) else request
    return request


class HttpSession(requests.Session):
    """Takes over the adapters and settings of another session.

    What the environment says of a host is asked for at the first call to it. Thread-safe as far as requests is.
    """

    def __init__(self, other: requests.Session) -> None:
        super().__init__()
        for name in ("headers", "proxies", "params", "verify", "cert", "adapters", "stream", "trust_env", "cookies"):
            setattr(self, name, getattr(other, name))
        self.auth = log_in_as_told
        #: Scheme and host -> proxies that the environment names; with ``verify`` -> what it says of certificates.
        self._of_host: dict[tuple[Any, ...], dict[str, Any]] = {}

    def merge_environment_settings(self, url: Any, proxies: Any, stream: Any, verify: Any, cert: Any) -> dict[str, Any]:
        """See `requests.Session`."""
        if proxies or not isinstance(verify, (bool, str, type(None))):
            return super().merge_environment_settings(url, proxies, stream, verify, cert)
        place = urllib.parse.urlsplit(url)
        key = (place.scheme, place.netloc, stream, verify, cert)
        found = self._of_host.get(key)
        if found is None:
            found = self._of_host[key] = super().merge_environment_settings(url, {}, stream, verify, cert)
        # Adapters may change the proxies.
        return {**found, "proxies": dict(found["proxies"])}

    def request(self, method: Any, url: Any, *arguments: Any, **named: Any) -> requests.Response:
        """See `requests.Session`. Blocks."""
        plain = not arguments and named.get("allow_redirects") is False and named.keys() <= _KNOWN
        if not plain or self.params or len(self.cookies):
            return super().request(method, url, *arguments, **named)
        headers = CaseInsensitiveDict(self.headers)
        headers.update({name: value for name, value in (named.get("headers") or {}).items() if value is not None})
        prepared = requests.PreparedRequest()
        prepared.prepare(
            method=method.upper(),
            url=url,
            headers=headers,
            data=named.get("data"),
            params=named.get("params"),
            auth=self.auth,
        )
        settings = self.merge_environment_settings(
            prepared.url, {}, named.get("stream"), named.get("verify"), named.get("cert")
        )
        # Session.send would look for redirections and hooks, and for cookies twice.
        response = self.get_adapter(url).send(prepared, timeout=named.get("timeout"), **settings)
        if "Set-Cookie" in response.headers:
            extract_cookies_to_jar(self.cookies, prepared, response.raw)
        return response

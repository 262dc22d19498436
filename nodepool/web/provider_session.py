# SPDX-License-Identifier: Apache-2.0
"""Calls to OpenID Connect providers: HTTPS, no other address than asked, answers bounded in size and time."""

from __future__ import annotations

from typing import Any, Final

import requests
import urllib3
from requests.adapters import HTTPAdapter

from nodepool.clock import monotonic
from nodepool.config.webapp import wrong_provider_address
from nodepool.guard import OnError

#: A connection, and each read of an answer, is waited for no longer.
PROVIDER_SECONDS: Final = 5.0
#: The body of an answer takes no longer, and has no more bytes.
ANSWER_SECONDS: Final = 10.0
MOST_ANSWER_BYTES: Final = 1024 * 1024
_PIECE_BYTES: Final = 8 * 1024


def provider_json(url: str) -> dict[str, Any]:
    """The JSON object at an address of a provider; blocks.

    :raises requests.RequestException: it cannot be had. ValueError: it is no JSON object.
    """
    with requests.Session() as session:
        mount(session)
        answer = session.get(url)
        answer.raise_for_status()
        found = answer.json()
    if not isinstance(found, dict):
        raise ValueError(f"{url} is no JSON object")
    return found


def mount(session: requests.Session) -> None:
    """Bound all calls of a session; once a session."""
    adapter = _ProviderAdapter()
    for prefix, old in list(session.adapters.items()):
        session.mount(prefix, adapter)
        old.close()


class _ProviderAdapter(HTTPAdapter):
    """Reads each answer completely before it returns, ``stream`` or not."""

    def send(self, request: requests.PreparedRequest, *arguments: Any, **options: Any) -> requests.Response:
        """Raises subclasses of `requests.RequestException`."""
        wrong = wrong_provider_address(str(request.url))
        if wrong is not None:
            raise requests.exceptions.InvalidURL(wrong)
        response = super().send(request, *arguments, **{**options, "stream": True, "timeout": PROVIDER_SECONDS})
        with OnError(lambda _: response.close()):
            if response.is_redirect:
                raise requests.TooManyRedirects(f"{request.url} leads to another address, which is not followed")
            # Where requests keeps what was read; `content` and `json` look there.
            response._content = _read(response)
        return response


def _read(response: requests.Response) -> bytes:
    content, deadline = bytearray(), monotonic() + ANSWER_SECONDS
    while piece := _piece(response):
        content += piece
        if len(content) > MOST_ANSWER_BYTES:
            raise requests.exceptions.ContentDecodingError(f"the answer has more than {MOST_ANSWER_BYTES >> 10} KiB")
        if monotonic() > deadline:
            raise requests.Timeout(f"the answer takes more than {ANSWER_SECONDS:g} s")
    return bytes(content)


def _piece(response: requests.Response) -> bytes:
    try:
        # Not `iter_content`: it waits until a piece is full, byte by byte.
        piece: bytes = response.raw.read1(_PIECE_BYTES, decode_content=True)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise requests.ConnectionError(f"the answer is not complete: {error}") from error
    return piece

# SPDX-License-Identifier: Apache-2.0
"""Why a cloud did not answer, in one line (rule J-7)."""

from __future__ import annotations

import pytest

from nodepool.driver.framework.cloud_errors import no_answer

HEAD = "Unable to establish connection to https://cloud:5000/v3: HTTPSConnectionPool(host='cloud', port=5000): "
CAUSED = HEAD + "Max retries exceeded with url: /v3 (Caused by "


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (f"{CAUSED}NewConnectionError('a new connection: [Errno 111] Connection refused'))", "connection refused"),
        (
            f"{CAUSED}NameResolutionError(\"Failed to resolve 'cloud' ([Errno -2] Name or service not known)\"))",
            "the name cannot be resolved",
        ),
        (f"{CAUSED}NewConnectionError('[Errno 113] No route to host'))", "No route to host"),
        (
            f"{HEAD}('Connection aborted.', RemoteDisconnected('Remote end closed connection without response'))",
            "the connection broke (Connection aborted)",
        ),
        ("Request to https://cloud:5000/v3 timed out", "timed out"),
        (
            "SSL exception connecting to https://cloud:5000/v3: HTTPSConnectionPool(host='cloud', port=5000): Max "
            "retries exceeded with url: /v3 (Caused by SSLError(SSLCertVerificationError(1, '[SSL: "
            "CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate (_ssl.c:1006)')))",
            "its certificate is not accepted (self-signed certificate)",
        ),
        (
            "SSL exception connecting to https://cloud:5000/v3: (Caused by SSLError(SSLError(1, '[SSL: "
            "WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)')))",
            "it does not speak TLS there (is it http:// instead of https://?)",
        ),
    ],
)
def test_cause(text: str, cause: str) -> None:
    """J-7: what keystoneauth and requests really say."""
    assert no_answer(text) == f"no answer from https://cloud:5000/v3: {cause}"


def test_address_of_urllib3() -> None:
    """J-7: a connection of a class of its own."""
    text = "NewConnectionError: _HttpsConnection(host='cloud', port=6443): Failed: [Errno 111] Connection refused"
    assert no_answer(text) == "no answer from cloud:6443: connection refused"


def test_address_of_requests() -> None:
    """J-7."""
    text = "HTTPConnectionPool(host='cloud', port=80): Read timed out. (read timeout=60)"
    assert no_answer(text) == "no answer from cloud:80: timed out"


@pytest.mark.parametrize(
    "text", ["", "no versions", "Connection refused", "Unable to establish connection to http://x: odd"]
)
def test_nothing_known(text: str) -> None:
    """J-7: then the whole text is told."""
    assert no_answer(text) is None

# SPDX-License-Identifier: Apache-2.0
"""A JWT that proves that we have the key of a certificate (RFC 7523).

As https://learn.microsoft.com/entra/identity-platform/certificate-credentials has it, and MSAL makes it.
"""

from __future__ import annotations

import base64
import json
import uuid
from typing import Any


def client_assertion(pem: bytes, client_id: str, audience: str, now: float, seconds: float) -> str:
    """Sign one.

    :param pem: certificate and private key.
    :param audience: address of the token endpoint.
    :param now: seconds since the epoch.
    :param seconds: how long it is valid.
    :raises ValueError: there is no certificate or no key in the PEM.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import padding, rsa

    certificate = x509.load_pem_x509_certificate(pem)
    key = serialization.load_pem_private_key(pem, None)
    if not isinstance(key, rsa.RSAPrivateKey):
        raise ValueError("the key of the certificate is not RSA")
    head = {"alg": "PS256", "typ": "JWT", "x5t#S256": _text(certificate.fingerprint(hashes.SHA256()))}
    claims = {
        "aud": audience,
        "iss": client_id,
        "sub": client_id,
        "jti": str(uuid.uuid4()),
        "nbf": int(now),
        "exp": int(now + seconds),
    }
    signed = f"{_json(head)}.{_json(claims)}"
    # RFC 7518, 3.5.
    pss = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)
    signature = key.sign(signed.encode(), pss, hashes.SHA256())
    return f"{signed}.{_text(signature)}"


def _json(value: dict[str, Any]) -> str:
    return _text(json.dumps(value).encode())


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

# SPDX-License-Identifier: Apache-2.0
"""The key of the simulated service account: made once in each process, kept nowhere."""

from __future__ import annotations

import base64
import binascii
import json
from functools import cache
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

_BITS, _EXPONENT = 2048, 65537


@cache
def _key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=_EXPONENT, key_size=_BITS)


def private_key() -> str:
    """As a key file has it (PKCS #8)."""
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return _key().private_bytes(encoding, form, serialization.NoEncryption()).decode()


def read_assertion(text: str) -> dict[str, Any]:
    """The claims of a JSON web token that the key has signed (RFC 7519, RS256).

    :raises ValueError: it has not, or this is none.
    """
    try:
        head, claims, signature = text.split(".")
        _key().public_key().verify(
            _decoded(signature), f"{head}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256()
        )
        if json.loads(_decoded(head)).get("alg") != "RS256":
            raise ValueError("Invalid JWT: it must be signed with RS256.")
        found: dict[str, Any] = json.loads(_decoded(claims))
    except InvalidSignature:
        raise ValueError("Invalid JWT Signature.") from None
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"Invalid JWT: {error}") from None
    return found


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))

# SPDX-License-Identifier: Apache-2.0
"""Cloud Object Storage: its S3 API with a token of IAM.

https://cloud.ibm.com/docs/cloud-object-storage?topic=cloud-object-storage-compatibility-api
"""

from __future__ import annotations

from simulators.base.messages import Answer, ApiError
from simulators.base.s3_api import S3Api


class CosApi(S3Api):
    """Every path that no other service has."""

    name = "cos"

    @staticmethod
    def serves(path: str) -> bool:
        return path.strip("/") != ""

    def error(self, error: ApiError) -> Answer:
        if error.status in (401, 403):
            error = ApiError(403, "Access Denied", "AccessDenied", error.headers)
        return super().error(error)

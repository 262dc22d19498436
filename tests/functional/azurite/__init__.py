# SPDX-License-Identifier: Apache-2.0
"""Page blobs of uploads at Azurite, Microsoft's emulator of Azure Storage: ``tox -e functional-azurite``."""

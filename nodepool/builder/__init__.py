# SPDX-License-Identifier: Apache-2.0
"""The image builder: builds disk images, uploads them to clouds, and removes what is not needed any more."""

# SPDX-License-Identifier: Apache-2.0
"""What every daemon needs: worker threads, the connection, providers and their start."""

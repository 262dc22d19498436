# SPDX-License-Identifier: Apache-2.0
"""Records as tables, for commands and pages: values in, a `Table` out. No I/O but in `terminal`, which prints them."""

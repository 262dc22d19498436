# SPDX-License-Identifier: Apache-2.0
"""Names that only drivers written for Nodepool 11.0.0 use.

They are imported when such a driver needs them. Each name is also in its old module, which gets it from here:
`nodepool.late_names`. The launcher's own code does the work. What is promised to authors says the page "Drivers written
for Nodepool 11" of the driver guide.
"""

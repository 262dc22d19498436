# SPDX-License-Identifier: Apache-2.0
"""What drivers written for Nodepool 11.0.0 use, and nothing else does. Imported when such a driver asks for it.

A name stands at its old place, in a module that gets it from here: `nodepool.late_names`. What it does is done by the
launcher's own code. What is promised to authors says the page "Drivers written for Nodepool 11" of the driver guide.
"""

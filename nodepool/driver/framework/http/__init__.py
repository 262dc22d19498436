# SPDX-License-Identifier: Apache-2.0
"""Calls to clouds over HTTP: bounded in size and time, over connections that are kept, without a library of the cloud.

* ``connections.py``: how a call is made and its answer is read, bounded, and for little CPU;
* ``plain_http.py``: one call: what is sent, what comes back, and whether the cloud may have received it;
* ``rest_calls.py``: calls of one provider: pace, repeats, login, JSON, errors.

Modules that need requests or urllib3 are imported when a provider is made.
"""

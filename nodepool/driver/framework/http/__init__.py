# SPDX-License-Identifier: Apache-2.0
"""Calls to clouds over HTTP: bounded in size and time, over connections that are kept, without a library of the cloud.

* ``bounded.py``: no answer is longer or takes longer than it may;
* ``kept_connections.py``, ``answer_reader.py``: calls over open connections, for a tenth of the CPU;
* ``quick_exchange.py``: usual calls over them, written as bytes;
* ``http_session.py``: a session of requests whose calls cost less;
* ``plain_http.py``: one call: what is sent, what comes back, and whether the cloud may have received it;
* ``rest_calls.py``: calls of one provider: pace, repeats, login, JSON, errors; ``retry_after.py``;
* ``no_answer.py``: why a cloud did not answer, in one line.

Modules that need requests or urllib3 are imported when a provider is made.
"""

# SPDX-License-Identifier: Apache-2.0
"""Calls to clouds over HTTP: bounded in size and time, over connections that are kept, without a library of the cloud.

* ``bounded.py``: no answer is longer or takes longer than it may;
* ``kept_connections.py``, ``answer_reader.py``: calls over open connections, for a tenth of the CPU;
* ``http_session.py``: a session of requests whose calls cost less;
* ``no_answer.py``: why a cloud did not answer, in one line.

Modules that need requests or urllib3 are imported when a provider is made.
"""

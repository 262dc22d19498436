# SPDX-License-Identifier: Apache-2.0
"""What simulated clouds have in common, whatever their API is.

* `http_server.HttpServer`: many connections, one thread, answers that may wait; `messages` are what passes through it;
* `settings.SimulatorSettings`: what can be changed while it runs; `rules.ErrorRule`, `faults`: calls that go wrong;
* `core.SimulationCore`: the lock, the clock (virtual if the test wants it), seeded chance, and what happens later;
* `application.SimulatedApplication`: counts calls, delays them, lets them fail, loses answers;
* `routing.Routes`, `pages.page`, `throttle.Throttle`, `lag.Lagging`, `tokens.CreateTokens`: for the services;
* `simulator.Simulator`, `admin.AdminApi`, `client.AdminClient`: how tests start a cloud and steer it.
"""

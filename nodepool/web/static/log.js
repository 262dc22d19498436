// SPDX-License-Identifier: Apache-2.0
// Adds to the log what its build writes, and stays at its end unless somebody has scrolled up.
(() => {
  "use strict";
  const log = document.getElementById("log");
  const state = document.getElementById("log-state");
  const stream = new EventSource(log.dataset.stream);
  const told = state.textContent;
  const toEnd = () => { log.scrollTop = log.scrollHeight; };

  stream.onopen = () => { state.textContent = told; };
  stream.onerror = () => { state.textContent = "The connection is lost; it is tried again."; };
  stream.onmessage = (message) => {
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 30;
    log.append(JSON.parse(message.data));
    if (atEnd) toEnd();
  };
  stream.addEventListener("end", () => {
    stream.close();
    state.textContent = "The build has ended.";
  });
  toEnd();
})();

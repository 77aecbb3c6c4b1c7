// The calls of the gateway, each as a line for a shell, with this gateway's address and token filled in.

import { call, token } from "./api.js";

const JSON_BODY = "-H 'Content-Type: application/json'";
const TOMORROW = new Date(Date.now() + 86400000).toISOString();
const CALLS = [
  ["The names of the sources", "", "/v1/sources"],
  ["The latest message of a source. While ON it is read from the mirror; while OFF it is one step", "", "/v1/sources/NAME"],
  ["The same only if the switch is ON, and safe to repeat", "-H 'X-Privacy-Expected: on' -H 'Idempotency-Key: my-key-1'", "/v1/sources/NAME"],
  ["The same as entries to read, their HTML cleaned", "", "/v1/entries/NAME"],
  ["A source as an Atom feed, from the mirror: not a request", "", "/v1/feeds/NAME"],
  ["All sources as one feed, newest first", "", "/v1/feeds"],
  ["The addresses of all feeds, as OPML for a feed reader", "", "/v1/feeds.opml"],
  ["Where the switch stands", "", "/v1/privacy"],
  ["Turn it ON", `-X PUT ${JSON_BODY} -d '{"private": true}'`, "/v1/privacy"],
  ["Turn it OFF for ten minutes", `-X PUT ${JSON_BODY} -d '{"private": false, "seconds": 600}'`, "/v1/privacy"],
  ["Turn it ON until a time", `-X PUT ${JSON_BODY} -d '{"private": true, "until": "${TOMORROW}"}'`, "/v1/privacy"],
  ["When it turns by itself", "", "/v1/schedule"],
  ["ON on weekdays from 9 to 17, OFF otherwise", `-X PUT ${JSON_BODY} -d '{"rules": ["ON mon-fri 09:00-17:00"]}'`, "/v1/schedule"],
  ["Refresh the mirror now", `-X PUT ${JSON_BODY} -d '{}'`, "/v1/refresh"],
  ["The sources, and what is new", "", "/v1/reading"],
  ["Mark everything as read", `-X PUT ${JSON_BODY} -d '{"all": true}'`, "/v1/reading"],
  ["Whether what is opened while OFF is remembered, to learn a model from", "", "/v1/learning"],
  ["Remember it", `-X PUT ${JSON_BODY} -d '{"remember": true}'`, "/v1/learning"],
  ["Forget it, and stop", `-X PUT ${JSON_BODY} -d '{"remember": false}'`, "/v1/learning"],
  ["What the server saw, for `onoff audit log`", "", "/v1/log"],
  ["All that the page shows", "", "/v1/state"],
  ["The same whenever it changes", "-N", "/v1/events"],
];

function line(options, path, name) {
  const place = path.replace("NAME", encodeURIComponent(name));
  return `curl ${options ? `${options} ` : ""}-H 'Authorization: Bearer ${token()}' '${location.origin}${place}'`;
}

async function show() {
  const answer = await call("/v1/sources").catch(() => null);
  const name = answer !== null && answer.ok ? (await answer.json()).sources[0] ?? "NAME" : "NAME";
  document.getElementById("calls").replaceChildren(...CALLS.map(([what, options, path]) => {
    const text = line(options, path, name);
    const code = Object.assign(document.createElement("code"), { textContent: text });
    const copy = Object.assign(document.createElement("button"), { type: "button", className: "button", textContent: "Copy" });
    copy.setAttribute("aria-label", `Copy: ${what}`);
    copy.addEventListener("click", async () => {
      await navigator.clipboard.writeText(text);
      copy.textContent = "Copied";
    });
    const section = Object.assign(document.createElement("section"), { className: "card call" });
    section.append(Object.assign(document.createElement("h2"), { textContent: what }), code, copy);
    return section;
  }));
}

show();

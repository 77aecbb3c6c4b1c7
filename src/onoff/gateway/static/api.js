// Speaking to the gateway. The token is behind the # of the address that was printed; it is kept by this origin alone,
// port included, and goes into a header: never into a cookie, which every port of this machine would get.

const KEEP = "onoff-token";
const RETRY_MS = 1000;

function readToken() {
  const given = decodeURIComponent(location.hash.slice(1));
  if (given !== "") {
    localStorage.setItem(KEEP, given);
    history.replaceState(null, "", location.pathname);
  }
  return localStorage.getItem(KEEP) ?? "";
}

let mine = readToken();
addEventListener("hashchange", () => { mine = readToken(); location.reload(); });

export const known = () => mine !== "";
export const token = () => mine;

export function call(path, options = {}) {
  return fetch(path, { cache: "no-store", ...options, headers: { ...options.headers, Authorization: `Bearer ${mine}` } });
}

export function put(path, body) {
  return call(path, { method: "PUT", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

// Calls `told(state)` now and after every change, `lost(status)` whenever the stream ends; status 0 where nobody answered.
export async function listen(told, lost) {
  for (;;) {
    let status = 0;
    try {
      const answer = await call("/v1/events");
      status = answer.status;
      if (answer.ok) await read(answer.body.pipeThrough(new TextDecoderStream()).getReader(), told);
    } catch { /* gone, and asked again below */ }
    lost(status);
    await new Promise((done) => setTimeout(done, RETRY_MS));
  }
}

async function read(reader, told) {
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (held + value).split("\n\n");
    held = events.pop();
    for (const event of events) {
      const data = event.split("\n").find((line) => line.startsWith("data: "));
      if (data !== undefined) told(JSON.parse(data.slice(6)));
    }
  }
}

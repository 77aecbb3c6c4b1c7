// The reader: the list of sources, and what is being read. The list draws as many rows as are looked at, so that five
// thousand sources take no longer than fifty.

import { call, put } from "./api.js";
import { framed, leave } from "./message.js";
import { several, severalCost } from "./servers.js";
import { siteNext } from "./site.js";
import { $, ago, bytesText, element, mode, when } from "./ui.js";

const PAGE = 60; // rows that are drawn at a time
const ENTRIES = 20; // entries that are drawn at a time

let state = null;
let sources = []; // as the gateway lists them
let listed = null; // the state of the list that is shown
let shownRows = PAGE;
let onlyNew = false;
let last = null; // the last request from this page: {name, key}
let busy = null; // the source that is being asked for
let ordered = false; // the order of the list was set for the kind of sources

export const names = () => sources.filter((source) => source.modelled).map((source) => source.name); // as queries number them

export const places = () => sources.filter((source) => source.at); // those that have one

export async function showReader(now) {
  state = now;
  if (!ordered && state.site !== null) { $("order").value = "name"; $("show-new").hidden = true; } // nothing of a site is newer than the rest
  ordered = true;
  showCosts();
  if (listed === state.reading) return;
  listed = state.reading;
  const answer = await call("/v1/reading").catch(() => null);
  if (answer === null || !answer.ok) { listed = null; return; }
  sources = (await answer.json()).sources;
  showList();
}

// -- the list

function wished() {
  const words = $("filter").value.trim().toLowerCase();
  const found = sources.filter((source) => (!onlyNew || source.new) && (words === "" || `${source.name} ${source.title ?? ""}`.toLowerCase().includes(words)));
  if ($("order").value === "name") return found.sort((a, b) => a.name.localeCompare(b.name));
  return found.sort((a, b) => (b.published ?? -1) - (a.published ?? -1));
}

export function showList() {
  const fresh = sources.filter((source) => source.new).length;
  $("show-all").setAttribute("aria-pressed", String(!onlyNew));
  $("show-new").setAttribute("aria-pressed", String(onlyNew));
  $("show-all").textContent = `All ${sources.length}`;
  $("show-new").textContent = `New ${fresh}`;
  $("mark-all").hidden = fresh === 0;
  const found = wished(), rows = found.slice(0, shownRows), made = rows.map(row);
  const focused = document.activeElement?.dataset?.source, top = $("tiles").scrollTop;
  $("tiles").replaceChildren(...made);
  $("tiles").scrollTop = top;
  if (focused !== undefined) $("tiles").querySelector(`.tile[data-source="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  $("more").hidden = found.length <= rows.length;
  $("more").textContent = `Show more (${found.length - rows.length} left)`;
  $("none").hidden = found.length > 0;
  $("none").textContent = sources.length === 0 ? "The sources are not known yet." : onlyNew ? "Nothing is new." : "No source has such a name or title.";
}

function row(source) {
  const asking = busy === source.name;
  const seen = source.read === null ? "" : `read ${when(source.read, state.now)}`;
  const about = asking ? "asking …" : [source.dead === null ? "" : `does not answer: ${source.dead}`, source.modelled ? "" : "not in the model: only while ON", source.published === null ? "" : when(source.published / 1000, state.now), seen].filter(Boolean).join(" · ");
  const tile = element("button", {
    type: "button", class: `tile${source.new ? " new" : ""}${source.dead === null ? "" : " dead"}`, "data-source": source.name,
    "aria-pressed": String(last?.name === source.name), "aria-busy": String(asking),
  }, element("b", {}, source.name), ...(source.new ? [element("span", { class: "sr" }, ", new")] : []), ...(source.title ? [element("span", { class: "newest" }, source.title)] : []), element("small", {}, about || "not read yet"));
  return element("li", {}, tile);
}

// -- what it costs

function showCosts() {
  const { mirror, next, privacy, forecast, model } = state;
  const inMirror = !several(state) && mirror !== null && mirror.supported && (privacy.private || model === null);
  $("sources-hint").textContent = inMirror ? "All of them are on this computer: open what you like, nobody is asked."
    : privacy.private ? "Choose one: it is hidden among all that is asked for." : "Choose one: the server sees that you open it, but not what you read while ON.";
  if (several(state)) $("sources-hint").textContent = "Choose one: every server is asked, and none of them learns which.";
  if (state.unmodelled > 0) $("sources-hint").textContent += ` ${state.unmodelled === 1 ? "One source is" : `${state.unmodelled} sources are`} new on the server and not in the model: readable while ON; OFF cannot ask for ${state.unmodelled === 1 ? "it" : "them"} until the model knows ${state.unmodelled === 1 ? "it" : "them"}.`;
  $("next-cost").textContent = several(state) ? severalCost(state) : state.site !== null ? siteNext(state) : nextCost(inMirror, next, privacy, forecast);
  const has = mirror !== null && mirror.supported;
  $("mirror").hidden = !has;
  if (!has) return;
  const age = mirror.refreshed === null ? null : Math.max(0, state.now - mirror.refreshed);
  const parts = state.site !== null ? [age === null ? "Not fetched yet" : `Everything was asked for at ${when(mirror.refreshed, state.now)}, ${ago(age)}`] : [...(several(state) ? ["Copies for feed readers"] : []), age === null ? "Not fetched yet" : `As of ${when(mirror.refreshed, state.now)}, ${ago(age)}`, `${bytesText(mirror.used_today)} received today`];
  if (mirror.problem !== null) parts.push(`the last refresh failed: ${mirror.problem}`);
  $("mirror-text").textContent = parts.join(" · ");
}

function nextCost(inMirror, next, privacy, forecast) {
  const hour = forecast?.hour === null || forecast?.hour === undefined ? "" : ` An hour of ON takes about ${bytesText(forecast.hour)}.`;
  const off = next === null || next.off === null ? null : next.off;
  const bytes = (messages) => (forecast?.message ? `, about ${bytesText(messages * forecast.message)}` : "");
  const offText = off === null ? "" : `${off.toFixed(1)} messages${bytes(off)}`;
  if (state.model === null) return `The next click downloads nothing.${hour} Without a model OFF is the same as ON; with one, OFF would ask for a few messages instead of refreshing.`;
  if (inMirror) return `The next click downloads nothing.${hour}${offText ? ` With OFF it would take ${offText}.` : ""}`;
  if (privacy.private) return next === null || next.on === null ? "" : `The next click downloads ${next.on.toFixed(0)} messages${bytes(next.on)}.`;
  return offText === "" ? "The cost of the next click is being worked out." : `The next click downloads about ${offText}.${hour}`;
}

// -- the message

export async function ask(name, key = crypto.randomUUID()) {
  if (busy !== null || state === null) return;
  busy = name;
  last = { name, key };
  if (history.state?.reading !== true) history.pushState({ reading: true }, ""); // Back leads back to the list; no name is kept
  mark(name);
  $("again").hidden = true;
  try {
    const answer = await call(`/v1/entries/${encodeURIComponent(name)}`, {
      headers: { "Idempotency-Key": key, "X-Privacy-Expected": state.privacy.private ? "on" : "off" },
    });
    if (answer.ok) await showMessage(name, answer);
    else await showProblem(name, answer);
  } catch {
    $("message-about").textContent = "The gateway does not answer. Nothing was asked.";
  }
  busy = null;
  mark(name);
}

// Redraw the rows of a click, and no others.
function mark(name) {
  const focused = document.activeElement?.dataset?.source;
  for (const tile of $("tiles").querySelectorAll(".tile[aria-pressed=true], .tile[aria-busy=true]")) {
    const source = sources.find((one) => one.name === tile.dataset.source);
    if (source !== undefined) tile.parentElement.replaceWith(row(source));
  }
  const tile = $("tiles").querySelector(`.tile[data-source="${CSS.escape(name)}"]`);
  const source = sources.find((one) => one.name === name);
  if (tile === null || source === undefined) return;
  const made = row(source);
  tile.parentElement.replaceWith(made);
  if (focused === name) made.firstChild.focus({ preventScroll: true });
}

function bring() {
  const section = $("message");
  if (section.getBoundingClientRect().top >= 0 && section.getBoundingClientRect().top < innerHeight / 2) return;
  section.scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth", block: "start" });
}

async function showMessage(name, answer) {
  const head = (field) => answer.headers.get(field);
  const on = head("x-privacy-mode") === "on", local = head("x-mirror") === "yes", fetched = local && Number(head("x-cost-messages")) > 0;
  $("message-body").dataset.ready = "false";
  $("message-title").textContent = name;
  const time = head("x-message-time");
  $("message-about").replaceChildren(element("ul", { class: "chips" },
    element("li", { class: on ? "chip-on" : "chip-off" }, fetched ? "a server is missing: everything was fetched from another" : local ? "read here, nobody was asked" : `asked with privacy ${mode(on)}`),
    ...(local ? [element("li", {}, `fetched ${ago(Number(head("x-age")))}`)] : [element("li", {}, `${head("x-cost-messages")} of ${head("x-sources")} messages downloaded, ${bytesText(Number(head("x-cost-bytes")))}`)]),
    element("li", {}, time === null ? "nothing published yet" : `${state.site === null ? "published" : "as the site had it at"} ${when(new Date(time) / 1000, state.now)}`),
    ...(head("x-note") ? [element("li", {}, head("x-note"))] : [])));
  const { entries } = await answer.json();
  entries.sort((a, b) => (b.time ?? 0) - (a.time ?? 0));
  $("message-body").replaceChildren();
  const loaded = showEntries(entries, entries.length > 1);
  bring();
  await loaded;
  $("message-body").dataset.ready = "true";
}

// Draw the first of these entries, and a button for the rest; resolves when all that was drawn is there.
function showEntries(entries, many) {
  const shown = entries.slice(0, ENTRIES).map((entry) => shownEntry(entry, many)), rest = entries.slice(ENTRIES);
  const frames = shown.flatMap((article) => [...article.querySelectorAll("iframe")]);
  const loaded = Promise.all(frames.map((frame) => new Promise((done) => frame.addEventListener("load", done))));
  $("message-body").append(...shown);
  if (rest.length > 0) {
    const more = element("button", { type: "button", class: "button", id: "earlier" }, `Show earlier entries (${rest.length} left)`);
    more.addEventListener("click", () => { more.remove(); showEntries(rest, many); });
    $("message-body").append(more);
  }
  return loaded;
}

function shownEntry(entry, many) {
  const title = element("h3", {});
  if (entry.link) {
    const link = element("button", { type: "button", class: "link", title: entry.link }, entry.title || entry.link);
    link.addEventListener("click", () => leave(entry.link));
    title.append(link);
  } else if (entry.html !== undefined || many) title.append(entry.title);
  const titled = title.hasChildNodes() && entry.text?.trimStart().startsWith(entry.title); // a text whose first line is its title
  const text = titled ? entry.text.trimStart().slice(entry.title.length).trimStart() : entry.text;
  const body = entry.html === undefined ? element("pre", {}, text) : framed(entry.html, entry.title || "message");
  const time = many && entry.time !== null ? [element("p", { class: "hint" }, when(entry.time / 1000, state.now))] : [];
  return element("article", {}, ...(title.hasChildNodes() ? [title] : []), ...time, body);
}

async function showProblem(name, answer) {
  const problem = await answer.json().catch(() => ({ title: `HTTP ${answer.status}` }));
  $("message-title").textContent = name;
  $("message-about").textContent = `${problem.title}. ${problem.hint ?? ""}`;
  $("message-body").replaceChildren();
  $("again").hidden = state.site !== null || (answer.status !== 504 && answer.status !== 502);
  bring();
}

export function startReader() {
  $("tiles").addEventListener("click", (event) => {
    const tile = event.target.closest(".tile");
    if (tile !== null) ask(tile.dataset.source);
  });
  const again = () => { shownRows = PAGE; showList(); };
  $("filter").addEventListener("input", again);
  $("order").addEventListener("change", again);
  $("show-all").addEventListener("click", () => { onlyNew = false; again(); });
  $("show-new").addEventListener("click", () => { onlyNew = true; again(); });
  $("more").addEventListener("click", () => { shownRows += PAGE; showList(); });
  $("mark-all").addEventListener("click", () => put("/v1/reading", { all: true }));
  $("again").addEventListener("click", () => last !== null && ask(last.name, last.key));
  history.scrollRestoration = "manual"; // else the browser scrolls as well, after us
  const list = () => { $("sources").scrollIntoView({ block: "start" }); $("tiles").querySelector("[aria-pressed=true]")?.focus({ preventScroll: true }); };
  $("back").addEventListener("click", () => (history.state?.reading === true ? history.back() : list()));
  addEventListener("popstate", (event) => (event.state?.reading === true ? $("message").scrollIntoView({ block: "start" }) : list()));
  $("refresh").addEventListener("click", async () => {
    $("refresh").disabled = true;
    await put("/v1/refresh", {}).catch(() => null);
    $("refresh").disabled = false;
  });
}


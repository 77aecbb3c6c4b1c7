// The page shows what the engine says and nothing of its own: every event carries the whole state, and is drawn whole.

import { call, known as hasToken, listen, put } from "./api.js";
import { framed, leave, leavingDialog } from "./message.js";

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const ROW = 24, TOP = 26, FEW = 64, MANY_TILES = 24, SHOWN = 40;

let state = null; // as the engine told it last
let reachable = false; // the gateway, not the server
let refused = !hasToken(); // the gateway does not know this page's token
let skew = 0; // the engine's clock minus ours, in seconds
let last = null; // the last request from this page: {name, key}
let offered = null; // the position for which the timer's choice was made
let busy = null; // the source that is being asked for

// -- building blocks: text is always text, never markup

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value !== null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

function drawn(tag, attributes = {}, text = null) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== null) made.textContent = text;
  return made;
}

function titled(shape, text) {
  shape.append(drawn("title", {}, text));
  return shape;
}

const mode = (isPrivate) => (isPrivate ? "ON" : "OFF");
const clock = (seconds, format = { timeStyle: "medium" }) => new Date(seconds * 1000).toLocaleTimeString([], { ...format, hourCycle: "h23" });
const shortClock = (seconds) => clock(seconds, { timeStyle: "short" });
const percent = (share) => `${(100 * share).toFixed(1)} %`;
const bitsText = (bits) => `${bits === 0 ? "0" : bits.toFixed(3)} bits`;

function bytesText(bytes) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (bytes >= 1000 && at < units.length - 1) { bytes /= 1000; at += 1; }
  return `${at === 0 ? bytes : bytes.toFixed(1)} ${units[at]}`;
}

function left(until) {
  const seconds = Math.max(0, Math.ceil(until - (Date.now() / 1000 + skew)));
  const two = (number) => String(number).padStart(2, "0");
  const hours = Math.floor(seconds / 3600);
  const rest = `${two(Math.floor(seconds / 60) % 60)}:${two(seconds % 60)}`;
  return hours ? `${hours}:${rest}` : rest;
}

// -- the switch

function showSwitch() {
  const known = reachable && state !== null;
  const name = !known || state.connected !== true ? "gone" : state.privacy.private ? "on" : "off";
  document.body.dataset.state = name;
  const knob = $("switch");
  knob.disabled = !known;
  knob.setAttribute("aria-checked", known ? String(state.privacy.private) : "mixed");
  $("switch-name").textContent = `Privacy: ${{ on: "ON", off: "OFF", gone: "not connected" }[name]}`;
  $("word").textContent = { on: "ON", off: "OFF", gone: "Not connected" }[name];
  $("sentence").textContent = sentence(name, known);
  $("detail").textContent = {
    on: "Every source that you could want is asked for.",
    off: "What you want now may show. What you asked for in private does not.",
    gone: "Nothing is asked for.",
  }[name];
  document.title = { on: "ON · onoff", off: "OFF · onoff", gone: "not connected · onoff" }[name];
  for (const control of ["timer-to", "timer-for", "timer-until", "timer-start", "timer-stop"]) $(control).disabled = !known;
  if (known) return showTimer();
  $("countdown").hidden = true;
  $("notice").textContent = "";
}

function sentence(name, known) {
  if (name === "on") return "Hidden. The server cannot tell which source you want.";
  if (name === "off") return "Asking openly, the past stays hidden.";
  if (refused) return "This page has no token, or an old one. Open the address that `onoff gateway` printed.";
  if (!known) return "The gateway does not answer. It may have been stopped; this page looks for it every second.";
  const why = state.connected === null ? "Looking for the server." : `The server does not answer: ${state.problem}.`;
  return `${why} The switch is set to ${mode(state.privacy.private)}.`;
}

function showTimer() {
  const { private: isPrivate, until, ran_out: ranOut } = state.privacy;
  if (offered !== isPrivate) { offered = isPrivate; $("timer-to").value = isPrivate ? "off" : "on"; }
  $("countdown").hidden = until === null;
  if (until !== null) $("countdown").textContent = `${mode(isPrivate)} for another ${left(until)}, then ${mode(!isPrivate)}.`;
  $("timer-stop").hidden = until === null;
  $("timer-stop").textContent = `Stay ${mode(isPrivate)}`;
  const notice = $("notice");
  notice.classList.toggle("strong", ranOut !== null || state.note !== null);
  if (ranOut !== null) notice.textContent = `The timer ran out at ${clock(ranOut)}: privacy is ${mode(isPrivate)} again.`;
  else notice.textContent = state.note ?? "";
}

async function turn(body) {
  const answer = await put("/v1/privacy", body).catch(() => null);
  if (answer !== null && !answer.ok) {
    const problem = await answer.json();
    $("notice").textContent = `${problem.title}. ${problem.hint ?? ""}`;
  }
}

function startTimer() {
  const wanted = $("timer-to").value === "on";
  if ($("timer-for").value !== "until") return turn({ private: wanted, seconds: Number($("timer-for").value) });
  const [hours, minutes] = ($("timer-until").value || "18:00").split(":").map(Number);
  const end = new Date();
  end.setHours(hours, minutes, 0, 0);
  if (end <= new Date()) end.setDate(end.getDate() + 1);
  return turn({ private: wanted, until: end.toISOString() });
}

// -- sources and the message

function showTiles() {
  const holder = $("tiles");
  const names = state.names;
  $("filter").hidden = names.length <= MANY_TILES;
  const wished = $("filter").value.trim().toLowerCase();
  const times = new Map(state.steps.filter((s) => s.wanted !== undefined).map((s) => [s.wanted, s.time]));
  if (holder.childElementCount !== names.length) {
    holder.replaceChildren(...names.map((name) => {
      const tile = element("button", { type: "button", class: "tile", "data-source": name }, element("b", {}, name), element("small"));
      tile.addEventListener("click", () => ask(name));
      return tile;
    }));
  }
  [...holder.children].forEach((tile, at) => {
    const asking = busy === names[at];
    tile.hidden = wished !== "" && !names[at].toLowerCase().includes(wished);
    tile.setAttribute("aria-pressed", String(last?.name === names[at]));
    tile.setAttribute("aria-busy", String(asking));
    tile.lastChild.textContent = asking ? "asking" : times.has(at) ? `read ${shortClock(times.get(at))}` : "not read yet";
  });
  const how = state.privacy.private ? "hidden among all that is asked for" : "asked openly; what was private stays hidden";
  $("sources-hint").textContent = `Choose one to download its latest message: ${how}.`;
}

async function ask(name, key = crypto.randomUUID()) {
  if (busy !== null || state === null) return;
  busy = name;
  last = { name, key };
  showTiles();
  $("again").hidden = true;
  try {
    const answer = await call(`/v1/entries/${encodeURIComponent(name)}`, {
      headers: { "Idempotency-Key": key, "X-Privacy-Expected": state.privacy.private ? "on" : "off" },
    });
    if (answer.ok) await showMessage(name, answer);
    else await showProblem(name, answer);
  } catch {
    $("message-about").textContent = "The gateway does not answer.";
  }
  busy = null;
  showTiles();
}

async function showMessage(name, answer) {
  const head = (field) => answer.headers.get(field);
  const on = head("x-privacy-mode") === "on";
  $("message-body").dataset.ready = "false";
  $("message-title").textContent = name;
  const time = head("x-message-time");
  const published = time === null ? "nothing published yet" : `published ${new Date(time).toLocaleString()}`;
  $("message-about").replaceChildren(element("ul", { class: "chips" },
    element("li", { class: on ? "chip-on" : "chip-off" }, `asked with privacy ${mode(on)}`),
    element("li", {}, `${head("x-cost-messages")} of ${head("x-sources")} messages downloaded`),
    element("li", {}, published),
    ...(head("x-note") ? [element("li", {}, head("x-note"))] : [])));
  const { entries } = await answer.json();
  const shown = entries.map(shownEntry);
  const frames = shown.flatMap((article) => [...article.querySelectorAll("iframe")]);
  const loaded = Promise.all(frames.map((frame) => new Promise((done) => frame.addEventListener("load", done))));
  $("message-body").replaceChildren(...shown);
  await loaded;
  $("message-body").dataset.ready = "true";
}

function shownEntry(entry) {
  const title = element("h3", {});
  if (entry.link) {
    const link = element("button", { type: "button", class: "link" }, entry.title || entry.link);
    link.addEventListener("click", () => leave(entry.link));
    title.append(link);
  } else if (entry.html !== undefined) title.append(entry.title);
  const body = entry.html === undefined ? element("pre", {}, entry.text) : framed(entry.html, entry.title || "message");
  return element("article", {}, ...(title.hasChildNodes() ? [title] : []), body);
}

async function showProblem(name, answer) {
  const problem = await answer.json().catch(() => ({ title: `HTTP ${answer.status}` }));
  $("message-title").textContent = name;
  $("message-about").textContent = `${problem.title}. ${problem.hint ?? ""}`;
  $("message-body").replaceChildren();
  $("again").hidden = answer.status !== 504 && answer.status !== 502;
}

// -- charts

// How wide one request is drawn: all of them fill the width, within reason; more than fit are scrolled.
function columnOf(holder, count) {
  return Math.max(22, Math.min(40, Math.floor((holder.clientWidth - 130) / Math.max(count, 12))));
}

function chart(holder, names, height, width, shapes, label) {
  const right = holder.querySelector(".scroll");
  const atEnd = right === null || right.scrollLeft + right.clientWidth >= right.scrollWidth - 4;
  const picture = drawn("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  picture.append(...shapes);
  const wide = Math.min(130, 14 + 7.5 * Math.max(...names.map(([text]) => text.length), 2));
  const side = drawn("svg", { class: "names", width: wide, height, viewBox: `0 0 ${wide} ${height}`, "aria-hidden": "true" });
  side.append(...names.map(([text, y]) => {
    const fits = Math.floor((wide - 12) / 7.2);
    return drawn("text", { class: "name", x: wide - 10, y, "text-anchor": "end" }, text.length > fits ? `${text.slice(0, fits - 1)}…` : text);
  }));
  const scroll = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, picture);
  holder.replaceChildren(side, scroll);
  if (atEnd) scroll.scrollLeft = scroll.scrollWidth;
}

function showSeen() {
  const steps = state.steps.slice(-SHOWN), n = state.names.length;
  if (state.level !== "full" || n > FEW || steps.length === 0) {
    const why = state.level !== "full" ? "The log keeps no sets." : n > FEW ? "Too many sources to draw." : "Nothing yet.";
    $("seen").replaceChildren(element("p", { class: "hint" }, why));
    return;
  }
  const shapes = [], column = columnOf($("seen"), steps.length);
  steps.forEach((step, t) => {
    const x = t * column, asked = new Set(step.sources);
    const bar = drawn("rect", { class: step.private ? "mode-on" : "mode-off", x: x + 3, y: 6, width: column - 6, height: 8, rx: 4, "data-step": step.step, "data-mode": mode(step.private) });
    shapes.push(titled(bar, `request ${step.step}, ${clock(step.time)}: privacy ${mode(step.private)}, ${step.cost} of ${n}`));
    for (let source = 0; source < n; source += 1) {
      const y = TOP + source * ROW, isAsked = asked.has(source);
      const cell = drawn("rect", { class: isAsked ? "asked" : "cell", x: x + 2, y: y + 2, width: column - 4, height: ROW - 4, rx: 5 });
      if (isAsked) { cell.dataset.step = step.step; cell.dataset.source = state.names[source]; }
      shapes.push(titled(cell, `${state.names[source]}: ${isAsked ? "asked for" : "not asked for"} in request ${step.step}`));
      if (step.wanted === source) {
        const mark = drawn("circle", { class: "wanted", cx: x + column / 2, cy: y + ROW / 2, r: 5, "data-step": step.step, "data-wanted": state.names[source] });
        shapes.push(titled(mark, `${state.names[source]}: what you wanted in request ${step.step}; known only here`));
      }
    }
  });
  const names = [["", 15], ...state.names.map((name, at) => [name, TOP + at * ROW + 16])];
  const label = `The last ${steps.length} requests: which of ${n} sources the server was asked for.`;
  chart($("seen"), names, TOP + n * ROW + 4, steps.length * column + 4, shapes, label);
}

function showCost() {
  const { totals, names } = state, size = null;
  const n = names.length, steps = state.steps.slice(-SHOWN);
  if (totals.requests === 0) return;
  const known = totals.unweighed === 0;
  const saved = totals.everything - totals.messages;
  const inBytes = size === null ? "" : ` (${bytesText(saved * size)})`;
  $("cost-text").textContent = `${totals.messages} messages for ${totals.requests} requests: ${percent(saved / totals.everything)} saved${inBytes} against asking for everything.`;
  const lines = [
    ["everything, always", totals.everything, "all", ""], ["onoff", totals.messages, "messages", "ours us"],
    ["lower bound", known ? totals.lower : null, "lower", ""], ["no privacy", totals.requests, "plain", "naive"],
  ];
  $("totals").replaceChildren(...lines.flatMap(([text, value, id, kind]) => [
    element("span", { class: kind.includes("us") ? "us" : "" }, text),
    element("progress", { class: `bar ${kind}`, max: totals.everything, value: value ?? 0, "aria-label": text }),
    element("span", { class: kind.includes("us") ? "us" : "", "data-total": id }, value === null ? "not known" : Number.isInteger(value) ? String(value) : value.toFixed(1)),
  ]));
  if (steps.length === 0) return $("cost").replaceChildren(element("p", { class: "hint" }, "The log keeps totals only."));
  const column = columnOf($("cost"), steps.length), width = steps.length * column + 4;
  const high = 110, y = (value) => 10 + high * (1 - value / n);
  const shapes = [n, 1].map((value) => drawn("line", { class: "rule", x1: 0, x2: width, y1: y(value), y2: y(value) }));
  steps.forEach((step, t) => {
    const x = t * column;
    const bar = drawn("rect", { class: "asked", x: x + 4, y: y(step.cost), width: column - 8, height: high * step.cost / n, rx: 3, "data-step": step.step, "data-cost": step.cost });
    const bound = step.lower === null ? "" : `; at least ${step.lower.toFixed(2)} on average`;
    const usual = step.expected === null ? "" : `, ${step.expected.toFixed(2)} expected`;
    shapes.push(titled(bar, `request ${step.step}: ${step.cost} messages${usual}${bound}`));
    if (step.lower !== null) shapes.push(drawn("line", { class: "bound", x1: x + 3, x2: x + column - 3, y1: y(step.lower), y2: y(step.lower), "data-step": step.step, "data-lower": step.lower }));
  });
  chart($("cost"), [[String(n), y(n) + 4], ["1", y(1) + 4]], high + 18, width, shapes, `Messages downloaded in each of the last ${steps.length} requests, of ${n}.`);
}

function showBelief() {
  const { posterior, totals, names } = state;
  if (posterior === null) {
    if (totals.unweighed > 0) $("belief-text").textContent = "These queries are drawn without a table, so there is nothing to work out here.";
    return $("belief").replaceChildren();
  }
  const truth = state.steps.find((step) => step.step === posterior.step && step.private)?.wanted;
  $("belief-text").textContent = `About request ${posterior.step}, made with privacy ON: how likely each source is to the server after all that was asked since, if all were equally likely before. ${state.model?.zero ?? ""}`;
  const top = Math.max(...posterior.ours, ...posterior.naive);
  const panel = (kind, title, shares, bits) => element("div", { class: `belief ${kind}` },
    element("h3", {}, title), element("p", { class: "bits", "data-bits": bits }, `${bitsText(bits)} told about all private requests`),
    element("div", { class: "rows" }, ...posterior.sources.flatMap((source, at) => [
      element("span", { class: source === truth ? "who true" : "who", title: source === truth ? "what you wanted; known only here" : names[source] }, names[source]),
      element("progress", { class: `bar ${kind}`, max: top, value: shares[at], "aria-label": `${title}, ${names[source]}`, "data-source": names[source], "data-share": shares[at] }),
      element("span", {}, percent(shares[at])),
    ])));
  $("belief").replaceChildren(
    panel("ours", "With onoff", posterior.ours, totals.bits),
    panel("naive", "With naive switching", posterior.naive, totals.naive));
}

function showProgress() {
  const { building, waiting } = state;
  $("progress").hidden = building === null;
  if (building === null) return;
  const since = Math.max(0, Math.round(Date.now() / 1000 + skew - building.since));
  const what = `Preparing the next query: a table for ${building.sources} sources, ${since} s so far.`;
  $("progress").textContent = waiting > 0 ? `${what} Your request is sent when it is ready.` : what;
}

// -- life

function show() {
  showSwitch();
  if (state === null) return;
  $("server").textContent = state.server;
  showTiles(); showSeen(); showCost(); showBelief(); showProgress();
}

function heard(told) {
  state = told;
  reachable = true;
  refused = false;
  skew = state.now - Date.now() / 1000;
  show();
}

function lost(status) {
  reachable = false;
  refused = status === 403;
  showSwitch();
}

$("switch").addEventListener("click", () => state !== null && turn({ private: !state.privacy.private }));
$("timer-start").addEventListener("click", startTimer);
$("timer-stop").addEventListener("click", () => turn({ private: state.privacy.private }));
$("timer-for").addEventListener("change", () => { $("timer-until-label").hidden = $("timer-for").value !== "until"; });
$("filter").addEventListener("input", showTiles);
$("again").addEventListener("click", () => last !== null && ask(last.name, last.key));
setInterval(() => { if (reachable && state !== null) { showTimer(); showProgress(); } }, 250);
leavingDialog();
showSwitch();
if (hasToken()) listen(heard, lost);

// Web sites: a map of the sources that have places, what a site was asked for and what it can conclude, and what it cost.

import { $, amount, bytesText, drawn, element, percent, plural, prose, titled, when } from "./ui.js";

const FEW = 400; // sources that are drawn one by one; more are dots of one shape
const LABELLED = 40; // sources that have their names beside them
const PAD = 26, HIGHEST = 440, NEAR = 28;

let points = []; // where each source is on the map: {name, x, y}
let size = { width: 0, height: 0 };
let placed = ""; // the places for which the points are
let cursor = null; // the source at which the keyboard is
let open = () => {};
let drawnFor = "";

export function siteSentence(state, name) {
  if (name === "on" || state.model === null) return `Hidden. The site is asked for all ${plural(state.n, "source")}, by the clock; it cannot tell which one you want.`;
  return "The site sees a few sources, with the one you want among them, but not what you read while ON.";
}

const every = (seconds) => (seconds < 120 ? `${amount(seconds)} s` : `${amount(Math.round(seconds / 6) / 10)} min`);

// What the next click takes, and what is left of the budget.
export function siteNext(state) {
  const { site, next, privacy, model } = state;
  const left = site.budgets.map((each) => `${each.left} of ${each.limit}`).join(", ");
  const rest = left === "" ? "" : ` Requests left: ${left}.`;
  const on = `The site is asked for all ${state.n} every ${every(site.every)}.`;
  if (model === null) return `The next click asks nobody. ${on} Without a model OFF is the same as ON.${rest}`;
  const off = next?.off === null || next === null ? "" : `about ${next.off.toFixed(1)} of ${state.n} sources`;
  if (privacy.private) return `The next click asks nobody. ${on}${off ? ` With OFF a click would ask for ${off}.` : ""}${rest}`;
  return (off === "" ? "The cost of the next click is being worked out." : `The next click asks the site for ${off}.`) + rest;
}

// What was asked and came back, beside staying ON for the whole time, and beside no privacy while OFF.
export function siteCost(state) {
  const { on, off, refreshes, always_on: always, every: interval } = state.site, opened = state.totals.requests;
  const requests = on.requests + off.requests, received = on.received + off.received;
  const plain = on.requests + opened;
  const sum = (count, bytes) => `${plural(count, "request")}, ${bytesText(bytes)}`;
  const dearer = requests > always.requests || received > always.received;
  const both = requests > always.requests && received > always.received;
  const verdict = requests === 0 ? "" : dearer
    ? ` Staying ON would have been cheaper in ${both ? "requests and bytes" : requests > always.requests ? "requests" : "bytes"}.`
    : ` That is ${percent(1 - requests / Math.max(always.requests, 1))} fewer requests than staying ON.`;
  $("cost-text").textContent = `${sum(requests, received)} since the start: ${plural(refreshes, "refresh").replace("refreshs", "refreshes")} while ON (${sum(on.requests, on.received)}) and ${plural(opened, "open request")} (${sum(off.requests, off.received)}). `
    + `Staying ON all the time, with a refresh every ${every(interval)}, would have taken about ${sum(always.requests, always.received)}.${verdict}`;
  const lines = [["always ON", always.requests, "always", ""], ["onoff", requests, "requests", "ours us"], ["no privacy while OFF", plain, "plain", "naive"]];
  const most = Math.max(...lines.map(([, value]) => value), 1);
  $("totals").replaceChildren(...lines.flatMap(([text, value, id, kind]) => [
    element("span", { class: kind.includes("us") ? "us" : "" }, text),
    element("progress", { class: `bar ${kind}`, max: most, value, "aria-label": `${text}: requests` }),
    element("span", { class: kind.includes("us") ? "us" : "", "data-total": id }, amount(value)),
  ]));
}

// -- the map

export function showSite(state, names, placedSources) {
  const card = $("map-card");
  card.hidden = state.site === null || placedSources.length === 0;
  if (card.hidden) return;
  place(placedSources);
  const { asked, opened } = state.site;
  const key = JSON.stringify([placed, asked?.time, opened, state.posterior, cursor]);
  if (key === drawnFor) return;
  drawnFor = key;
  const set = asked === null ? new Set() : new Set(asked.everything ? points.map((point) => point.name) : asked.sources.map((at) => names[at]));
  const wanted = opened?.name ?? null;
  drawMap($("map"), { classOf: (name) => (set.has(name) ? "asked" : "cell"), wanted, labels: points.length <= LABELLED });
  $("map-text").textContent = asked === null ? "The site was asked for nothing yet."
    : asked.everything ? `At ${when(asked.time, state.now)} the site was asked for everything.`
      : `At ${when(asked.time, state.now)} the site was asked for ${set.size} of ${names.length}.`;
  if (wanted !== null) $("map-text").textContent += ` You wanted ${wanted}, which is known only here.`;
  showBeliefs(state, names);
}

function showBeliefs(state, names) {
  const { posterior, totals } = state;
  $("map-beliefs").hidden = posterior === null;
  const said = posterior !== null ? `How likely the site considers each place as what you read last while ON, after all requests since. ${state.model?.zero ?? ""}`.trim()
    : totals.unweighed > 0 ? "These sets are drawn without a table, so what the site can conclude is not worked out here."
      : "Open something with privacy ON, then something with privacy OFF: then it shows how likely the site considers each place.";
  $("map-beliefs-text").replaceChildren(...prose(said));
  if (posterior === null) return;
  const top = Math.max(...posterior.ours, ...posterior.naive);
  for (const kind of ["ours", "naive"]) {
    const shares = new Map(posterior.sources.map((source, at) => [names[source], posterior[kind][at]]));
    const [name, most] = [...shares].reduce((best, each) => (each[1] > best[1] ? each : best), ["", 0]);
    const flat = posterior[kind].every((share) => Math.abs(share - posterior[kind][0]) < 1e-9);
    $(`map-${kind}-text`).textContent = flat ? "All places are equally likely." : `${name}: ${percent(most)}`;
    drawMap($(`map-${kind}`), { shares, top, about: `${kind === "ours" ? "With onoff" : "With naive switching"}: ${flat ? "all places are equally likely" : `most likely ${name}, ${percent(most)}`}` });
  }
}

// Where sources are, north up, at one scale in both directions.
function place(sources) {
  const width = Math.max(280, $("map").clientWidth);
  const key = `${width} ${sources.map((source) => `${source.name} ${source.at}`).join(";")}`;
  if (key === placed) return;
  placed = key;
  const lat = sources.map((source) => source.at[0]), lon = sources.map((source) => source.at[1]);
  const [south, north, west, east] = [lat.reduce(min), lat.reduce(max), lon.reduce(min), lon.reduce(max)];
  const middle = (south + north) / 2, squeeze = Math.abs(middle) < 90 ? Math.cos((middle * Math.PI) / 180) : 1;
  const wide = Math.max((east - west) * squeeze, 1e-9), high = Math.max(north - south, 1e-9);
  const scale = Math.min((width - 2 * PAD) / wide, (HIGHEST - 2 * PAD) / high);
  size = { width, height: Math.max(160, high * scale + 2 * PAD) };
  points = sources.map((source) => ({
    name: source.name,
    x: size.width / 2 + (source.at[1] - (west + east) / 2) * squeeze * scale,
    y: size.height / 2 - (source.at[0] - middle) * scale,
  }));
}

const min = (a, b) => Math.min(a, b), max = (a, b) => Math.max(a, b);

function drawMap(holder, { classOf = () => "cell", wanted = null, labels = false, shares = null, top = 1, about = null }) {
  const picture = drawn("svg", { viewBox: `0 0 ${size.width} ${size.height}`, ...(about === null ? { "aria-hidden": "true" } : { role: "img", "aria-label": about }) });
  if (points.length > FEW) {
    for (const kind of ["cell", "asked"]) {
      const some = points.filter((point) => classOf(point.name) === kind);
      picture.append(drawn("path", { class: kind, "data-count": some.length, d: some.map(({ x, y }) => `M${x.toFixed(1)} ${y.toFixed(1)}h0`).join("") }));
    }
  } else {
    for (const { name, x, y } of points) {
      const kind = classOf(name);
      picture.append(titled(drawn("circle", { class: kind, cx: x, cy: y, r: kind === "asked" ? 7 : 4, "data-source": name }), name));
    }
  }
  for (const point of points) {
    const share = shares?.get(point.name) ?? 0; // the area of the circle is the share
    if (share > 0) picture.append(titled(drawn("circle", { class: "share", cx: point.x, cy: point.y, r: Math.max(1.5, 22 * Math.sqrt(share / top)), "data-source": point.name, "data-share": share }), `${point.name}: ${percent(share)}`));
    if (point.name === wanted) picture.append(titled(drawn("circle", { class: "wanted", cx: point.x, cy: point.y, r: 10, "data-wanted": point.name }), `${point.name}: what you wanted; known only here`));
    if (point.name === cursor && about === null) picture.append(drawn("circle", { class: "cursor", cx: point.x, cy: point.y, r: 14, "data-cursor": point.name }));
  }
  if (labels) picture.append(...labelled());
  holder.replaceChildren(picture);
}

// Names beside their dots, where they cover nothing.
function labelled() {
  const taken = points.map(({ x, y }) => [x - 9, y - 9, x + 9, y + 9]), made = [];
  for (const { name, x, y } of points) {
    const wide = 7 * name.length;
    for (const [left, base, anchor] of [[x + 12, y + 4, "start"], [x - 12 - wide, y + 4, "end"], [x - wide / 2, y - 13, "middle"], [x - wide / 2, y + 22, "middle"]]) {
      const box = [left, base - 11, left + wide, base + 3];
      const free = box[0] > 0 && box[2] < size.width && box[1] > 0 && box[3] < size.height && taken.every((other) => box[2] < other[0] || box[0] > other[2] || box[3] < other[1] || box[1] > other[3]);
      if (!free) continue;
      taken.push(box);
      made.push(drawn("text", { x: anchor === "start" ? left : anchor === "end" ? left + wide : left + wide / 2, y: base, "text-anchor": anchor }, name));
      break;
    }
  }
  return made;
}

// -- by pointer and by keyboard

function nearest(x, y) {
  let found = null, best = NEAR ** 2;
  for (const point of points) {
    const far = (point.x - x) ** 2 + (point.y - y) ** 2;
    if (far < best) { found = point; best = far; }
  }
  return found;
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

// The next source in a direction: near, and not far off to the side.
function next([dx, dy]) {
  const from = points.find((point) => point.name === cursor) ?? { x: size.width / 2, y: size.height / 2 };
  let found = null, best = Infinity;
  for (const point of points) {
    const along = (point.x - from.x) * dx + (point.y - from.y) * dy, aside = Math.abs((point.x - from.x) * dy) + Math.abs((point.y - from.y) * dx);
    const far = along + 2 * aside;
    if (point.name !== cursor && along > 0.5 && far < best) { found = point; best = far; }
  }
  return found;
}

function moveTo(point) {
  if (point === null) return;
  cursor = point.name;
  $("map-here").textContent = `${cursor}. Enter opens it.`;
  $("map").querySelector(".cursor")?.remove();
  $("map").firstChild.append(drawn("circle", { class: "cursor", cx: point.x, cy: point.y, r: 14, "data-cursor": point.name }));
}

export function startMap(ask) {
  open = ask;
  $("map").addEventListener("click", (event) => {
    const box = $("map").getBoundingClientRect(), scale = size.width / box.width;
    const found = nearest((event.clientX - box.left) * scale, (event.clientY - box.top) * scale);
    if (found !== null) open(found.name);
  });
  $("map").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && cursor !== null) open(cursor);
    else if (event.key in ARROWS) { event.preventDefault(); moveTo(next(ARROWS[event.key])); }
  });
}

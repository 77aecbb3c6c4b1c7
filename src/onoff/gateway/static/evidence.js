// The evidence: what left this computer, what it cost, and what the server can conclude. Drawn when it is looked at.

import { several, showTogether, them, viewsOf } from "./servers.js";
import { siteCost } from "./site.js";
import { $, amount, drawn, element, mode, percent, plural, prose, titled, when } from "./ui.js";

const ROW = 24, TOP = 26, SHOWN = 40, MOST_BELIEFS = 8;

const bitsText = (bits) => `${bits === 0 ? "0" : bits.toFixed(3)} bits`;

export function showEvidence(state, names) {
  const { totals } = state;
  const unsent = totals.unsent ? `, ${plural(totals.unsent, "request")} never left` : "";
  $("evidence-short").textContent = totals.requests + totals.unsent === 0 ? "nothing yet" : `${plural(totals.requests, "request")}, ${plural(amount(totals.messages), "message")}${unsent}`;
  if (!$("evidence").open) return;
  showSeen(state, names); showTogether(state, names); showCost(state); showBelief(state, names); showTable(state);
}

// How wide one request is drawn: all of them fill the width, within reason; more than fit are scrolled.
function columnOf(holder, count) {
  return Math.max(24, Math.min(40, Math.floor((holder.clientWidth - 130) / Math.max(count, 12))));
}

function chart(holder, labels, height, width, shapes, label) {
  const right = holder.querySelector(".scroll");
  const atEnd = right === null || right.scrollLeft + right.clientWidth >= right.scrollWidth - 4;
  const picture = drawn("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  picture.append(...shapes);
  const wide = Math.min(130, 14 + 7.5 * Math.max(...labels.map(([text]) => text.length), 2));
  const side = drawn("svg", { class: "names", width: wide, height, viewBox: `0 0 ${wide} ${height}`, "aria-hidden": "true" });
  side.append(...labels.map(([text, y]) => {
    const fits = Math.floor((wide - 12) / 7.2);
    return drawn("text", { class: "name", x: wide - 10, y, "text-anchor": "end" }, text.length > fits ? `${text.slice(0, fits - 1)}…` : text);
  }));
  const scroll = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, picture);
  holder.replaceChildren(side, scroll);
  if (atEnd) scroll.scrollLeft = scroll.scrollWidth;
}

const why = (step) => (step.note ? `; ${step.note}` : "");
const about = (step, n) => `request ${step.step}, ${when(step.time)}: privacy ${mode(step.private)}, ${amount(step.cost)} of ${n}${step.left ? "" : "; it never left"}${why(step)}`;

function showSeen(state, names) {
  const steps = state.steps.slice(-SHOWN);
  if (state.level !== "full" || steps.length === 0) {
    $("seen").replaceChildren(element("p", { class: "hint" }, state.level !== "full" ? "The log keeps no sets." : "Nothing yet."));
    return;
  }
  if (!several(state)) return drawSeen($("seen"), steps, state.n, names, `the ${them(state)}`);
  const views = viewsOf(state, steps);
  $("seen").replaceChildren(...views.map(({ panel }) => panel));
  for (const { holder, steps: seen, url } of views) drawSeen(holder, seen, state.n, names, url);
}

function drawSeen(holder, steps, n, names, who) {
  const column = columnOf(holder, steps.length), bands = steps[0].bands?.length ?? 0;
  const rows = bands || n, shapes = [];
  steps.forEach((step, t) => {
    const x = t * column;
    const bar = drawn("rect", { class: !step.left ? "mode-unsent" : step.private ? "mode-on" : "mode-off", x: x + 3, y: 6, width: column - 6, height: 8, rx: 4, "data-step": step.step, "data-mode": mode(step.private) });
    shapes.push(titled(bar, about(step, n)));
    if (step.left) shapes.push(...(bands ? bandCells(step, x, column, names) : cells(step, x, column, names)));
    shapes.push(drawn("text", { class: "number", x: x + column / 2, y: TOP + rows * ROW + 16, "text-anchor": "middle" }, String(step.step)));
  });
  const each = n / rows;
  const label = (at) => (bands ? `${Math.floor(at * each) + 1}–${Math.floor((at + 1) * each)}` : names[at] ?? "");
  const labels = [["", 15], ...Array.from({ length: rows }, (_, at) => [label(at), TOP + at * ROW + 16])];
  const noted = steps.filter((step) => step.note).map((step) => `Request ${step.step}: ${step.note}.`).join(" ");
  const text = `The last ${plural(steps.length, "request")}: which of ${n} sources ${who} was asked for. ${noted}`;
  chart(holder, labels, TOP + rows * ROW + 24, steps.length * column + 4, shapes, text);
}

function cells(step, x, column, names) {
  const asked = new Set(step.sources);
  return names.flatMap((name, source) => {
    const y = TOP + source * ROW, isAsked = asked.has(source);
    const cell = drawn("rect", { class: isAsked ? "asked" : "cell", x: x + 2, y: y + 2, width: column - 4, height: ROW - 4, rx: 5 });
    if (isAsked) { cell.dataset.step = step.step; cell.dataset.source = name; }
    const made = [titled(cell, `${name}: ${isAsked ? "asked for" : "not asked for"} in request ${step.step}`)];
    if (step.wanted === source) {
      const mark = drawn("circle", { class: "wanted", cx: x + column / 2, cy: y + ROW / 2, r: 5, "data-step": step.step, "data-wanted": name });
      made.push(titled(mark, `${name}: what you wanted in request ${step.step}; known only here`));
    }
    return made;
  });
}

function bandCells(step, x, column, names) {
  const each = names.length / step.bands.length;
  return step.bands.flatMap((share, at) => {
    const y = TOP + at * ROW, size = { x: x + 2, y: y + 2, width: column - 4, height: ROW - 4, rx: 5 };
    const made = [drawn("rect", { class: "cell", ...size })];
    const many = `${percent(share)} of sources ${Math.floor(at * each) + 1} to ${Math.floor((at + 1) * each)} asked for in request ${step.step}`;
    made.push(titled(drawn("rect", { class: "asked", ...size, "fill-opacity": share === 0 ? 0 : 0.25 + 0.75 * share, "data-step": step.step, "data-share": share }), many));
    if (step.wanted !== undefined && Math.floor(step.wanted / each) === at) made.push(titled(drawn("circle", { class: "wanted", cx: x + column / 2, cy: y + ROW / 2, r: 5, "data-wanted": names[step.wanted] }), "what you wanted is here; known only on this page"));
    return made;
  });
}

function showCost(state) {
  const { totals, n } = state, top = several(state) ? 2 : n, steps = state.steps.filter((step) => step.left).slice(-SHOWN);
  if (state.site !== null) siteCost(state);
  if (totals.requests === 0) return;
  const saved = totals.everything - totals.messages;
  if (state.site === null) $("cost-text").textContent = `${amount(totals.messages)} messages for ${totals.requests} requests: ${percent(saved / totals.everything)} saved against asking for everything.`;
  const lines = [
    ["everything, always", totals.everything, "all", ""], ["onoff", totals.messages, "messages", "ours us"],
    ["lower bound", totals.unweighed === 0 ? totals.lower : null, "lower", ""], ["no privacy", totals.requests, "plain", "naive"],
  ];
  if (state.site === null) $("totals").replaceChildren(...lines.flatMap(([text, value, id, kind]) => [
    element("span", { class: kind.includes("us") ? "us" : "" }, text),
    element("progress", { class: `bar ${kind}`, max: totals.everything, value: value ?? 0, "aria-label": text }),
    element("span", { class: kind.includes("us") ? "us" : "", "data-total": id }, value === null ? "not known" : amount(value)),
  ]));
  if (steps.length === 0) return $("cost").replaceChildren(element("p", { class: "hint" }, "The log keeps totals only."));
  const column = columnOf($("cost"), steps.length), width = steps.length * column + 4;
  const high = 110, y = (value) => 10 + high * (1 - value / top);
  const shapes = [top, 1].map((value) => drawn("line", { class: "rule", x1: 0, x2: width, y1: y(value), y2: y(value) }));
  steps.forEach((step, t) => {
    const x = t * column;
    const bar = drawn("rect", { class: "asked", x: x + 4, y: y(step.cost), width: column - 8, height: high * step.cost / top, rx: 3, "data-step": step.step, "data-cost": step.cost });
    const bound = step.lower === null ? "" : `; at least ${step.lower.toFixed(2)} on average`;
    const usual = step.expected === null ? "" : `, ${step.expected.toFixed(2)} expected`;
    shapes.push(titled(bar, `request ${step.step}: ${amount(step.cost)} messages${usual}${bound}${why(step)}`));
    if (step.lower !== null) shapes.push(drawn("line", { class: "bound", x1: x + 3, x2: x + column - 3, y1: y(step.lower), y2: y(step.lower), "data-step": step.step, "data-lower": step.lower }));
    shapes.push(drawn("text", { class: "number", x: x + column / 2, y: high + 28, "text-anchor": "middle" }, String(step.step)));
  });
  chart($("cost"), [[String(top), y(top) + 4], ["1", y(1) + 4]], high + 34, width, shapes, `Messages downloaded in each of the last ${steps.length} requests, of ${n}.`);
}

function showBelief(state, names) {
  const { posterior, totals } = state;
  if (posterior === null) {
    if (totals.unweighed > 0) $("belief-text").textContent = "These queries are drawn without a table, so there is nothing to work out here.";
    return $("belief").replaceChildren();
  }
  const truth = state.steps.find((step) => step.step === posterior.step && step.private)?.wanted;
  const which = posterior.step < 0 ? "About what you read while ON" : `About request ${posterior.step} or what you read while ON after it`;
  $("belief-text").replaceChildren(...prose(`${which}: how likely the ${them(state)} considers each source after all requests since, if all were equally likely before. ${state.model?.zero ?? ""}`.trim()));
  const order = posterior.sources.map((_, at) => at).sort((a, b) => posterior.naive[b] - posterior.naive[a] || a - b);
  const kept = posterior.sources.length <= 2 * MOST_BELIEFS ? posterior.sources.map((_, at) => at) : order.slice(0, MOST_BELIEFS);
  const rest = posterior.sources.length - kept.length;
  const top = Math.max(...posterior.ours, ...posterior.naive);
  const panel = (kind, title, shares, bits) => element("div", { class: `belief ${kind}` },
    element("h3", {}, title), element("p", { class: "bits", "data-bits": bits }, `${bitsText(bits)} told about all private requests`),
    element("div", { class: "rows" }, ...kept.flatMap((at) => {
      const source = posterior.sources[at], name = names[source] ?? "";
      return [
        element("span", { class: source === truth ? "who true" : "who", title: source === truth ? "what you wanted; known only here" : name }, name),
        element("progress", { class: `bar ${kind}`, max: top, value: shares[at], "aria-label": `${title}, ${name}`, "data-source": name, "data-share": shares[at] }),
        element("span", {}, percent(shares[at])),
      ];
    })),
    ...(rest > 0 ? [element("p", { class: "hint" }, `The other ${rest} together: ${percent(1 - kept.reduce((sum, at) => sum + shares[at], 0))}`)] : []));
  $("belief").replaceChildren(
    panel("ours", "With onoff", posterior.ours, totals.bits),
    panel("naive", "With naive switching", posterior.naive, totals.naive));
}

// The same in words, for whoever does not see the charts.
function showTable(state) {
  const cell = (text) => element("td", {}, text);
  $("steps").replaceChildren(...state.steps.slice(-SHOWN).reverse().map((step) => element("tr", {},
    cell(String(step.step)), cell(when(step.time)), cell(mode(step.private)), cell(step.left ? `${amount(step.cost)} of ${state.n}` : "never left"), cell(step.note ?? ""))));
}

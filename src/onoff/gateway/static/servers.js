// Several servers: what each of them saw, and what they would know if they told each other.

import { $, amount, bytesText, element, plural } from "./ui.js";

const TOLD = 6; // requests that are named as what would be known

export const several = (state) => state.site === null && state.servers.length > 1;
export const them = (state) => (state.site === null ? "server" : "site"); // who is asked

// A panel for each server, and the steps as that server saw them.
export function viewsOf(state, steps) {
  return state.servers.map((server, place) => {
    const holder = element("div", { class: "chart" });
    const panel = element("section", { class: "view", "data-server": place, "aria-label": server.url },
      element("h3", {}, server.url), element("p", { class: "hint" }, about(server)), holder);
    return { url: server.url, holder, panel, steps: steps.map((step) => seenBy(step, place)) };
  });
}

function about(server) {
  const there = server.connected === false ? "It does not answer now. " : "";
  return `${there}${plural(server.queries, "request")}, ${bytesText(server.received)} from it and ${bytesText(server.sent)} to it.`;
}

function seenBy(step, place) {
  const view = step.views?.[place];
  if (view === undefined) return { ...step, sources: [], bands: step.bands?.map(() => 0) };
  if (view.bands !== undefined) return { ...step, bands: view.bands };
  return { ...step, sources: view.entries.flatMap((entry, source) => (entry > 0 ? [source] : [])) };
}

export function showTogether(state, names) {
  $("evidence-title").textContent = several(state) ? "What each server saw" : `What the ${them(state)} saw`;
  $("belief-title").textContent = several(state) ? "What each server can conclude by itself" : `What the ${them(state)} can conclude`;
  $("read-here").hidden = several(state);
  $("together").hidden = !several(state);
  $("views-text").hidden = !several(state);
  $("cost-lines").textContent = several(state) ? "two messages, and one" : "everything, and one alone";
  if (!several(state)) return;
  const steps = state.steps.filter((step) => step.left && step.views?.length);
  const known = steps.filter((step) => step.together !== null).slice(-TOLD);
  $("together-text").textContent = steps.length === 0 ? "Nothing yet." : `All of it. Their sets differ in exactly one source, the one you wanted, so ${state.servers.length} servers that tell each other what they were asked know what you wanted in each of ${plural(steps.length, "request")}, privacy ON or OFF. Choose operators who do not work together; \`onoff doctor\` says whether they look like one.`;
  $("together-known").replaceChildren(...known.map((step) => element("li", { "data-step": step.step, "data-known": names[step.together] }, `request ${step.step}: ${names[step.together]}`)));
}

// What the switch says, in place of what it says with one server.
export function severalSentence(state, name) {
  const always = state.privacy.always ? " Without a model every request is private: OFF hides as much as ON." : "";
  if (name === "gone") {
    if (state.connected === null) return `Looking for the servers. ${setTo(state)}`;
    const instead = state.on_missing === "everything" ? "Until it is back, everything is fetched from one that answers." : "All of them are needed; a request that failed can be sent again when it is back.";
    return `${state.problem}. ${instead} ${setTo(state)}`;
  }
  if (name === "on" || state.privacy.always) return `Hidden. No server by itself can tell which source you want.${always}`;
  return "Each server sees a random part of a small set that holds this request, and nothing of what you read while ON.";
}

const setTo = (state) => `The switch is set to ${state.privacy.private ? "ON" : "OFF"}.`;

// What the next click takes.
export function severalCost(state) {
  const { next, forecast, privacy } = state;
  const messages = next === null ? null : privacy.private ? next.on : next.off;
  if (messages === null) return "The cost of the next click is being worked out.";
  const bytes = forecast?.request?.[privacy.private ? "on" : "off"] ?? null;
  return `The next click downloads about ${amount(Math.round(messages * 10) / 10)} messages${bytes === null ? "" : `, about ${bytesText(bytes)}`}, from ${state.servers.length} servers together.`;
}

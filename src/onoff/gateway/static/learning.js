// Which model of a person's reading is in use, how well it is known, and whether open requests are remembered to learn one.

import { $, plural, prose, when } from "./ui.js";

export function showLearning(state) {
  const { model, learning, now } = state;
  const kind = model === null ? null : model.kind === "MarkovChain" ? "a chain" : "a model";
  $("learning-short").textContent = model === null ? "none in use" : model.origin.split(/, |\.( |$)/)[0].toLowerCase();
  $("model-text").replaceChildren(...prose(model === null
    ? state.mirror?.supported ? "No model is in use: everything is read from this computer, with the switch ON or OFF." : "No model is in use: every request is private."
    : `In use: ${kind} of ${plural(model.sources, "source")}. ${model.origin} Advice: ${model.advice.word}. ${model.zero}`));
  $("advice").replaceChildren(...prose(model === null ? "" : adviceOf(model)));
  $("model").textContent = model === null ? "No model of your reading is in use." : `Model in use: ${kind} of ${plural(model.sources, "source")}. ${model.origin}`;
  const on = learning.since !== null;
  $("remember").hidden = on;
  $("forget").hidden = !on;
  const enough = learning.requests >= learning.needed;
  $("learning-text").textContent = on
    ? `Remembered on this computer since ${when(learning.since, now)}: ${plural(learning.requests, "request")} made while OFF. ${enough ? "Enough to learn a model from:" : `A model needs ${learning.needed}.`}`
    : "Better than a guess is a model of your own reading. With your consent this computer remembers what you open while OFF, until you say stop. Of what you read while ON nothing is kept.";
  $("learning-command").hidden = !(on && enough);
  $("learning-command").textContent = learning.command;
}

// Before OFF: what the model's audits say. Before ON: what open requests have told already, which ON cannot take back.
function adviceOf({ advice, foreseen }) {
  const known = foreseen === null ? "" : ` From what you openly asked alone, the server's best guess of your next request is right ${Math.round(100 * foreseen)} times in 100, ON or OFF.`;
  return `Advice for OFF: ${advice.word}. ${advice.says}${known}`;
}

export function startLearning(change) {
  $("remember").addEventListener("click", () => change("/v1/learning", { remember: true }));
  $("forget").addEventListener("click", () => change("/v1/learning", { remember: false }));
}

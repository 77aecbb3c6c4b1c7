// The page shows what the engine says and nothing of its own: every event carries the state, and is drawn whole.

import { known as hasToken, listen, put } from "./api.js";
import { showEvidence } from "./evidence.js";
import { showLearning, startLearning } from "./learning.js";
import { leavingDialog } from "./message.js";
import { ask, names, places, showReader, startReader } from "./reader.js";
import { several, severalSentence, them } from "./servers.js";
import { showSite, siteSentence, startMap } from "./site.js";
import { $, countdown, mode, when } from "./ui.js";

let state = null; // as the engine told it last
let reachable = false; // the gateway, not the server
let refused = !hasToken(); // the gateway does not know this page's token
let skew = 0; // the engine's clock minus ours, in seconds
let offered = null; // the position for which the timer's choice was made

const now = () => Date.now() / 1000 + skew;

// -- the switch

function showSwitch() {
  const known = reachable && state !== null;
  const gone = !known || state.connected === false || (state.connected === null && state.site === null);
  const name = gone ? "gone" : state.privacy.private ? "on" : "off";
  document.body.dataset.state = name;
  const knob = $("switch");
  knob.disabled = !known;
  knob.setAttribute("aria-checked", known ? String(state.privacy.private) : "mixed");
  $("switch-name").textContent = `Privacy: ${{ on: "ON", off: "OFF", gone: "not connected" }[name]}`;
  $("word").textContent = { on: "ON", off: "OFF", gone: known && several(state) && state.connected === false ? "A server is missing" : "Not connected" }[name];
  $("sentence").textContent = sentence(name, known);
  document.title = { on: "ON · onoff", off: "OFF · onoff", gone: "not connected · onoff" }[name];
  for (const control of ["timer-to", "timer-for", "timer-until", "timer-start", "timer-stop", "schedule-rules", "schedule-save"]) $(control).disabled = !known;
  if (known) return showTimer();
  $("countdown").hidden = true;
  $("notice").textContent = $("next-cost").textContent = "";
}

function sentence(name, known) {
  if (refused) return "This page has no token, or an old one. Open the address that `onoff gateway` printed.";
  if (!known) return "The gateway does not answer. It may have been stopped; this page looks for it every second.";
  if (several(state)) return severalSentence(state, name);
  if (state.site !== null && name !== "gone") return siteSentence(state, name);
  if (name === "on" || (name === "off" && state.model === null)) return "Hidden. The server cannot tell which source you want.";
  if (name === "off") return "The server sees this request, but not what you read while ON.";
  const why = state.connected === null ? "Looking for the server." : `The ${them(state)} does not answer: ${state.problem}.`;
  return `${why} The switch is set to ${mode(state.privacy.private)}.`;
}

function showTimer() {
  const { private: isPrivate, until, ran_out: ranOut } = state.privacy;
  if (offered !== isPrivate) { offered = isPrivate; $("timer-to").value = isPrivate ? "off" : "on"; }
  $("countdown").hidden = until === null && state.schedule.next === null;
  if (until !== null) $("countdown").textContent = `${mode(isPrivate)} for another ${countdown(until - now())}, then ${mode(!isPrivate)}.`;
  else if (state.schedule.next !== null) $("countdown").textContent = `The schedule turns it at ${when(state.schedule.next, now())}.`;
  $("timer-stop").hidden = until === null;
  $("timer-stop").textContent = `Stay ${mode(isPrivate)}`;
  const notice = $("notice");
  notice.classList.toggle("strong", ranOut !== null || state.note !== null);
  if (ranOut !== null) notice.textContent = `The timer ran out at ${when(ranOut, now())}: privacy is ${mode(isPrivate)} again.`;
  else notice.textContent = state.note ?? "";
}

async function change(path, body) {
  const answer = await put(path, body).catch(() => null);
  if (answer === null || answer.ok) return true;
  const problem = await answer.json();
  $("notice").textContent = `${problem.title}. ${problem.hint ?? ""}`;
  return false;
}

const turn = (body) => change("/v1/privacy", body);

function startTimer() {
  const wanted = $("timer-to").value === "on";
  if ($("timer-for").value !== "until") return turn({ private: wanted, seconds: Number($("timer-for").value) });
  const [hours, minutes] = ($("timer-until").value || "18:00").split(":").map(Number);
  const end = new Date();
  end.setHours(hours, minutes, 0, 0);
  if (end <= new Date()) end.setDate(end.getDate() + 1);
  return turn({ private: wanted, until: end.toISOString() });
}

function saveSchedule() {
  const rules = $("schedule-rules").value.split("\n").map((line) => line.trim()).filter(Boolean);
  return change("/v1/schedule", { rules });
}

function showProgress() {
  const { building, waiting } = state;
  $("progress").hidden = building === null;
  if (building === null) return;
  const since = Math.max(0, Math.round(now() - building.since));
  const what = `Preparing the next query: a table for ${building.sources} sources, ${since} s so far.`;
  $("progress").textContent = waiting > 0 ? `${what} Your request is sent when it is ready.` : what;
}

// -- life

async function show() {
  showSwitch();
  if (state === null) return;
  $("server").textContent = state.servers.map((server) => server.url).join(" and ");
  showLearning(state);
  if (document.activeElement !== $("schedule-rules")) $("schedule-rules").value = state.schedule.rules.join("\n");
  showProgress();
  await showReader(state);
  showSite(state, names(), places());
  showEvidence(state, names());
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
$("schedule-save").addEventListener("click", saveSchedule);
$("evidence").addEventListener("toggle", () => state !== null && showEvidence(state, names()));
setInterval(() => { if (reachable && state !== null) { showTimer(); showProgress(); } }, 250);
startReader();
startMap(ask);
startLearning(change);
leavingDialog();
showSwitch();
if (hasToken()) listen(heard, lost);

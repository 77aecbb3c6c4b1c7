// Building blocks: text is always text, never markup; one format for times, one for bytes.

const SVG = "http://www.w3.org/2000/svg";

export const $ = (id) => document.getElementById(id);

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value !== null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

export function drawn(tag, attributes = {}, text = null) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== null) made.textContent = text;
  return made;
}

export function titled(shape, text) {
  shape.append(drawn("title", {}, text));
  return shape;
}

// Text in which `words` between backticks are shown as code.
export function prose(text) {
  return text.split("`").map((part, at) => (at % 2 ? element("code", {}, part) : part));
}

export const mode = (isPrivate) => (isPrivate ? "ON" : "OFF");
export const amount = (value) => (Number.isInteger(value) ? String(value) : value.toFixed(1));
export const percent = (share) => `${(100 * share).toFixed(1)} %`;
export const plural = (count, word) => `${count} ${word}${Number(count) === 1 ? "" : "s"}`;

const two = (number) => String(number).padStart(2, "0");

// 14:03 today, 12 Jan 14:03 this year, 12 Jan 2025 14:03 before; `seconds` since 1970.
export function when(seconds, now = Date.now() / 1000) {
  const then = new Date(seconds * 1000), today = new Date(now * 1000);
  const clock = `${two(then.getHours())}:${two(then.getMinutes())}`;
  if (then.toDateString() === today.toDateString()) return clock;
  const day = `${then.getDate()} ${then.toLocaleDateString("en", { month: "short" })}`;
  return then.getFullYear() === today.getFullYear() ? `${day} ${clock}` : `${day} ${then.getFullYear()} ${clock}`;
}

export function ago(seconds) {
  if (seconds < 60) return "less than a minute ago";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)} h ago` : `${Math.floor(seconds / 86400)} days ago`;
}

export function bytesText(bytes) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (bytes >= 1000 && at < units.length - 1) { bytes /= 1000; at += 1; }
  return `${at === 0 ? Math.round(bytes) : bytes.toFixed(1)} ${units[at]}`;
}

export function countdown(seconds) {
  const left = Math.max(0, Math.ceil(seconds)), hours = Math.floor(left / 3600);
  const rest = `${two(Math.floor(left / 60) % 60)}:${two(left % 60)}`;
  return hours ? `${hours}:${rest}` : rest;
}

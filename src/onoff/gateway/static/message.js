// What publishers wrote, shown so that it tells nobody. The gateway cleaned it; here it gets a frame in which nothing
// runs and, by its own policy, nothing but our style is loaded. Links keep their address out of the document: Chromium
// may connect to a link before it is clicked. A click says where a link leads, and then opens it in a new tab.

const HEAD = `<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="default-src 'none'; `
  + `style-src 'self'; form-action 'none'; base-uri 'none'"><meta name="referrer" content="no-referrer">`
  + `<link rel="stylesheet" href="/static/message.css">`;

export function framed(html, title) {
  const parsed = new DOMParser().parseFromString(html, "text/html"); // a document that is not shown loads nothing
  for (const link of parsed.querySelectorAll("a[href]")) {
    link.dataset.leadsTo = link.getAttribute("href");
    link.removeAttribute("href");
    link.setAttribute("role", "link");
    link.setAttribute("tabindex", "0");
  }
  const frame = document.createElement("iframe");
  frame.className = "message-frame";
  // The same origin, so that this script can see a click and the height; without allow-scripts nothing in it runs.
  frame.setAttribute("sandbox", "allow-same-origin");
  frame.setAttribute("referrerpolicy", "no-referrer");
  frame.title = title;
  frame.srcdoc = HEAD + parsed.documentElement.outerHTML;
  frame.addEventListener("load", () => settle(frame));
  return frame;
}

function settle(frame) {
  const inside = frame.contentDocument;
  if (inside === null) return;
  const fit = () => { frame.style.height = `${Math.ceil(inside.documentElement.getBoundingClientRect().height) + 2}px`; };
  fit();
  new ResizeObserver(fit).observe(inside.documentElement);
  const follow = (event) => {
    const link = event.target.closest?.("a[data-leads-to]");
    if (!link || (event.type === "keydown" && event.key !== "Enter")) return;
    event.preventDefault();
    leave(link.dataset.leadsTo);
  };
  inside.addEventListener("click", follow);
  inside.addEventListener("keydown", follow);
}

// Say where a link leads, and let the person decide.
export function leave(address) {
  const leads = /^(https?|mailto):/i.test(address);
  const dialog = document.getElementById("leaving");
  const open = document.getElementById("leaving-open");
  document.getElementById("leaving-to").textContent = address;
  document.getElementById("leaving-host").textContent = leads && URL.canParse(address) ? new URL(address).host || address : "nowhere";
  if (leads) open.href = address;
  else open.removeAttribute("href");
  dialog.showModal();
  document.getElementById("leaving-stay").focus();
}

export function leavingDialog() {
  const dialog = document.getElementById("leaving");
  const close = () => dialog.close();
  document.getElementById("leaving-stay").addEventListener("click", close);
  document.getElementById("leaving-open").addEventListener("click", () => setTimeout(close));
  dialog.addEventListener("close", () => document.getElementById("leaving-open").removeAttribute("href"));
}

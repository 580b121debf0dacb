// Keeps the parts of this page with `data-live` up to date. One tab of a browser holds the stream for all tabs, because
// six streams use up the connections of HTTP/1.1. A hidden tab closes it.
// A part waits while it has the focus, a selection, an open dialog, a changed field, a tick or the pointer.

const root = document.body.dataset.root ?? "";
const page = (location.pathname.slice(root.length) || "/") + location.search;
const clock = document.getElementById("live");
const parts = () => document.querySelectorAll("[data-live][id]");
const waiting = new Map();
const me = crypto.getRandomValues(new Uint32Array(2)).join("");
const SILENT_PERIODS = 3, CALL_MS = 5000, FORGET_MS = 12000;
let paused = false, period = 2, freshAt = Date.now();

// -- What arrives

function isBusy(part) {
  const selection = getSelection();
  return part.contains(document.activeElement) || part.matches(":hover") || part.querySelector("dialog[open]")
    || (!selection.isCollapsed && selection.rangeCount && selection.getRangeAt(0).intersectsNode(part))
    || [...part.querySelectorAll("input, textarea, select")].some(isChanged);
}

function isChanged(field) {
  if (field.type === "hidden") return false;
  if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
  if (field.options) return [...field.options].some((each) => each.selected !== each.defaultSelected) && field.selectedIndex > 0;
  return field.value !== field.defaultValue;
}

function take(id, html) {
  waiting.set(id, html);
  settle();
}

// Shows what waits, where nothing keeps it from being shown.
function settle() {
  if (paused) return;
  for (const [id, html] of waiting) {
    const old = document.getElementById(id);
    if (old && isBusy(old)) continue;
    waiting.delete(id);
    if (old) replace(old, html);
  }
}

function replace(old, html) {
  const box = document.createElement("template");
  box.innerHTML = html;
  const fresh = box.content.firstElementChild;
  if (!fresh || old.outerHTML === fresh.outerHTML) return;
  if (old.dataset.live === "list" && !old.dataset.jump) return hold(old, fresh);
  keepView(old, fresh);
  markChanges(old, fresh);
  old.replaceWith(fresh);
  fresh.dispatchEvent(new CustomEvent("watchbill:shown", { bubbles: true }));
}

// A list does not jump: its rows change where they are, and new ones wait above it.
function hold(old, fresh) {
  let news = 0;
  for (const row of fresh.querySelectorAll("[data-row]")) {
    const shown = old.querySelector(`[data-row="${CSS.escape(row.dataset.row)}"]`);
    if (!shown) news += 1;
    else if (shown.outerHTML !== row.outerHTML) { markChanges(shown, row); shown.replaceWith(row.cloneNode(true)); }
  }
  document.getElementById(`${old.id}-news`)?.remove();
  if (!news) return;
  const button = document.createElement("button");
  button.id = `${old.id}-news`;
  button.className = "news";
  button.textContent = `${news} new`;
  button.addEventListener("click", () => { button.remove(); keepView(old, fresh); old.replaceWith(fresh); });
  old.before(button);
}

function keepView(old, fresh) {
  const opened = [...old.querySelectorAll("details")], closed = [...fresh.querySelectorAll("details")];
  if (opened.length === closed.length) closed.forEach((each, at) => { each.open = opened[at].open; });
  const scrolled = [...old.querySelectorAll(".scroll, .pan, .code")], boxes = [...fresh.querySelectorAll(".scroll, .pan, .code")];
  if (scrolled.length === boxes.length) requestAnimationFrame(() => boxes.forEach((box, at) => {
    box.scrollLeft = scrolled[at].dataset.left ?? 0; box.scrollTop = scrolled[at].dataset.top ?? 0;
  }));
  scrolled.forEach((box) => { box.dataset.left = box.scrollLeft; box.dataset.top = box.scrollTop; });
}

function markChanges(old, fresh) {
  const before = [...old.querySelectorAll("td.n, dd, .num")], after = [...fresh.querySelectorAll("td.n, dd, .num")];
  if (before.length !== after.length) return;
  after.forEach((cell, at) => { if (cell.textContent !== before[at].textContent) cell.classList.add("changed"); });
}

function tick(at, seconds) {
  freshAt = Date.now();
  period = seconds;
  if (clock && !paused) { clock.lastChild.textContent = ` ${at}`; showState("live"); }
  settle();
}

function showState(word) {
  if (!clock) return;
  clock.dataset.state = word;
  const label = clock.querySelector(".word");
  if (label && label.textContent !== word) label.textContent = word;
  document.body.classList.toggle("stale", word === "silent");
}

setInterval(() => {
  settle();
  if (!paused && !document.hidden && Date.now() - freshAt > SILENT_PERIODS * Math.max(period, 2) * 1000) showState("silent");
}, 1000);
for (const name of ["focusout", "pointerup", "selectionchange"]) document.addEventListener(name, () => setTimeout(settle));

export function togglePause() {
  paused = !paused;
  showState(paused ? "paused" : "live");
  settle();
}

// -- Which tab asks

const channel = "BroadcastChannel" in self && navigator.locks ? new BroadcastChannel(`watchbill ${root}`) : null;
const others = new Map(); // pages of the other tabs, and when they last called
let source = null, asked = "", release = null;

function hear({ page: about, id, html, at, period: seconds }) {
  if (about !== page) return;
  if (id) take(id, html);
  else tick(at, seconds);
}

function open() {
  const pages = [...new Set([page, ...[...others.values()].map((each) => each.page)])];
  const wanted = pages.map((each) => `page=${encodeURIComponent(each)}`).join("&");
  if (source && wanted === asked && source.readyState !== EventSource.CLOSED) return;
  source?.close();
  asked = wanted;
  source = new EventSource(`${root}/live?${wanted}`);
  for (const name of ["fragment", "tick"]) {
    source.addEventListener(name, (event) => {
      const news = JSON.parse(event.data);
      hear(news);
      channel?.postMessage({ news });
    });
  }
  source.addEventListener("again", () => { source.close(); open(); });
}

function close() {
  source?.close();
  source = null;
  release?.();
  release = null;
}

function holdStream() {
  if (!channel) return open();
  navigator.locks.request(`watchbill ${root}`, () => {
    if (document.hidden) return undefined;
    others.clear();
    open();
    channel.postMessage({ who: true });
    return new Promise((resolve) => { release = resolve; });
  });
}

if (channel) {
  channel.addEventListener("message", ({ data }) => {
    if (data.news) return hear(data.news);
    if (data.who) return call();
    if (data.gone) others.delete(data.gone);
    else if (data.tab) others.set(data.tab, { page: data.page, at: Date.now() });
    if (release) open();
  });
  setInterval(() => {
    for (const [tab, { at }] of others) if (Date.now() - at > FORGET_MS) others.delete(tab);
    if (release) open();
    else call();
  }, CALL_MS);
}

const call = () => { if (!document.hidden) channel?.postMessage({ tab: me, page }); };
const leave = () => { close(); channel?.postMessage({ gone: me }); };

function begin() {
  if (!parts().length) return;
  freshAt = Date.now();
  holdStream();
  call();
}

document.addEventListener("visibilitychange", () => (document.hidden ? leave() : begin()));
addEventListener("pagehide", leave);
addEventListener("pageshow", (event) => { if (event.persisted) begin(); });
if (!document.hidden) begin();

// Keys: Ctrl-K finds anything; g and a letter goes to a page; j k x Enter walk a list; / goes to the filter; r c . act on
// the job; p stops the news; ? shows all of this. Single keys can be switched off.

import { togglePause } from "./live.js";

const root = document.body.dataset.root ?? "";
const PAGES = { o: "/", j: "/jobs", f: "/failures", s: "/schedules", q: "/queues", t: "/types", n: "/nodes", c: "/cluster", a: "/alerts" };
const HELP = [["Ctrl K", "find a page, a name or an action"], ["g o", "overview; j f s q t n c a: the other pages"], ["/", "filter"],
  ["j k", "next and previous row"], ["x", "choose the row"], ["Enter", "open the row"], ["r", "retry"], ["c", "cancel"],
  [".", "the first action"], ["p", "stop and continue live news"], ["?", "these keys"]];
const OFF = "watchbill single keys off";
let goes = 0;

const isTyping = (element) => element?.closest?.('input:not([type="checkbox"], [type="radio"]), textarea, select, [contenteditable]');
const isShown = (element) => element.checkVisibility?.() ?? Boolean(element.offsetParent); // not in a closed menu
const rows = () => [...document.querySelectorAll("main tbody tr:not(.sub), main .list > li")].filter((row) => row.querySelector("a") && isShown(row));
const isOff = () => localStorage.getItem(OFF) === "yes";

// -- A list

function walk(step) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.classList.contains("at"));
  const next = all[Math.max(0, Math.min(all.length - 1, at < 0 ? (step > 0 ? 0 : all.length - 1) : at + step))];
  all[at]?.classList.remove("at");
  next.classList.add("at");
  next.querySelector("a").focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

const current = () => rows().find((row) => row.classList.contains("at"));
const press = (name) => document.querySelector(`main [data-key="${name}"]`)?.click();

const SINGLE = {
  j: () => walk(1),
  k: () => walk(-1),
  x: () => current()?.querySelector('input[type="checkbox"]')?.click(),
  Enter: () => current()?.querySelector("a")?.click(),
  "/": () => (document.querySelector("main input.filter") ?? document.getElementById("find"))?.focus(),
  r: () => press("r"),
  c: () => press("c"),
  ".": () => document.querySelector("main button.main, main a.btn.main, main .notice button, main form button")?.focus(),
  p: togglePause,
  "?": () => showHelp(),
  g: () => { goes = Date.now(); },
};

document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "k") { event.preventDefault(); return showPalette(); }
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || document.querySelector("dialog[open]")) return undefined;
  if (isOff() && event.key !== "?") return undefined;
  if (Date.now() - goes < 1500 && PAGES[event.key]) { goes = 0; event.preventDefault(); location.href = root + PAGES[event.key]; return undefined; }
  if (event.key === "Enter" && (event.target !== document.body || !current())) return undefined;
  if (!SINGLE[event.key]) return undefined;
  event.preventDefault();
  return SINGLE[event.key]();
});

// -- Dialogs

function makeDialog(label, ...content) {
  const dialog = document.createElement("dialog");
  dialog.className = "palette";
  dialog.setAttribute("aria-label", label);
  dialog.append(...content);
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

const make = (name, values = {}, ...inner) => { const made = Object.assign(document.createElement(name), values); made.append(...inner); return made; };

function showHelp() {
  const list = make("dl", { className: "dl" }, ...HELP.flatMap(([key, text]) => [make("dt", {}, make("kbd", { textContent: key })), make("dd", { textContent: text })]));
  const box = make("input", { type: "checkbox", id: "single-keys", checked: !isOff() });
  box.addEventListener("change", () => localStorage.setItem(OFF, box.checked ? "no" : "yes"));
  makeDialog("Keys", make("h2", { textContent: "Keys" }), list, make("label", { className: "choice" }, box, "single keys work"));
}

// -- Palette: pages and actions of this page at once, names from the server

function listOwn() {
  const pages = [...document.querySelectorAll("#rail a")].map((link) => ({ kind: "page", label: link.title, act: () => link.click() }));
  const actions = [...document.querySelectorAll("main button:not([disabled]), main a.btn")].filter(isShown)
    .map((each) => ({ kind: "action", label: each.textContent.trim(), act: () => { each.scrollIntoView({ block: "center" }); each.focus(); } }));
  return [...pages, ...actions.filter((each) => each.label)];
}

function showPalette() {
  if (document.querySelector("dialog[open]")) return;
  const field = make("input", { type: "search", id: "palette", placeholder: "Find an id, type, queue, schedule, node, page or action", autocomplete: "off" });
  const list = make("ul", { className: "list", id: "palette-list" });
  for (const [name, value] of Object.entries({ role: "combobox", "aria-label": "Find", "aria-controls": list.id, "aria-expanded": "true", "aria-autocomplete": "list" })) field.setAttribute(name, value);
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Found");
  const dialog = makeDialog("Find", field, list), own = listOwn();
  let found = [], chosen = 0, asked = 0;

  function draw() {
    list.replaceChildren(...found.map((each, at) => {
      const item = make("li", { id: `palette-${at}` }, make("span", { className: "grow", textContent: each.label }), make("span", { className: "muted small", textContent: each.kind }));
      item.setAttribute("role", "option");
      item.setAttribute("aria-selected", String(at === chosen));
      item.addEventListener("click", () => run(each));
      return item;
    }));
    field.setAttribute("aria-activedescendant", found.length ? `palette-${chosen}` : "");
    list.children[chosen]?.scrollIntoView({ block: "nearest" });
  }

  function run(each) {
    dialog.close();
    if (each.address) location.href = each.address;
    else each.act();
  }

  async function look() {
    const text = field.value.trim().toLowerCase(), mine = ++asked;
    const here = own.filter((each) => each.label.toLowerCase().includes(text)).slice(0, 12);
    found = here; chosen = 0; draw();
    if (text.length < 2) return;
    try {
      const answer = await fetch(`${root}/find?q=${encodeURIComponent(field.value.trim())}`, { headers: { Accept: "application/json" } });
      if (mine !== asked || !answer.ok) return;
      found = [...here, ...(await answer.json())];
      draw();
    } catch { /* the pages and actions of this page are still there */ }
  }

  field.addEventListener("input", look);
  field.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && found.length) { event.preventDefault(); chosen = (chosen + step + found.length) % found.length; draw(); }
    if (event.key === "Enter" && found[chosen]) { event.preventDefault(); run(found[chosen]); }
  });
  look();
}

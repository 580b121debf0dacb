// Suggestions for the last word of a filter: its fields, and the values of those that have few. The words are in the
// `data-words` of the field, so that they are those of the server.

function lastWord(field) {
  const before = field.value.slice(0, field.selectionStart), start = before.search(/\S*$/);
  return { start, word: before.slice(start) };
}

function attach(field) {
  const words = field.dataset.words.split(" ");
  const list = document.createElement("ul");
  Object.assign(list, { id: `${field.id}-words`, className: "words", hidden: true });
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Suggestions");
  field.after(list);
  for (const [name, value] of Object.entries({ role: "combobox", "aria-autocomplete": "list", "aria-controls": list.id, "aria-expanded": "false" }))
    field.setAttribute(name, value);
  let chosen = -1;

  function show() {
    const { word } = lastWord(field);
    const found = word ? words.filter((each) => each.startsWith(word.toLowerCase()) && each !== word).slice(0, 8) : [];
    list.replaceChildren(...found.map((text, at) => {
      const item = Object.assign(document.createElement("li"), { id: `${list.id}-${at}`, textContent: text });
      item.setAttribute("role", "option");
      return item;
    }));
    choose(-1);
    list.hidden = !found.length;
    field.setAttribute("aria-expanded", String(!list.hidden));
  }

  function choose(at) {
    const items = [...list.children];
    chosen = items.length ? (at + items.length + 1) % (items.length + 1) : -1;
    if (chosen === items.length) chosen = -1;
    items.forEach((item, index) => item.setAttribute("aria-selected", String(index === chosen)));
    field.setAttribute("aria-activedescendant", items[chosen]?.id ?? "");
  }

  function accept(item) {
    const { start } = lastWord(field), after = field.value.slice(field.selectionStart);
    field.value = field.value.slice(0, start) + item.textContent + after;
    field.selectionStart = field.selectionEnd = start + item.textContent.length;
    field.focus();
    show();
  }

  field.addEventListener("input", show);
  field.addEventListener("blur", () => setTimeout(() => { list.hidden = true; field.setAttribute("aria-expanded", "false"); }, 150));
  list.addEventListener("pointerdown", (event) => { event.preventDefault(); const item = event.target.closest("li"); if (item) accept(item); });
  field.addEventListener("keydown", (event) => {
    if (list.hidden) return;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) { event.preventDefault(); choose(chosen === -1 && step < 0 ? list.children.length - 1 : chosen + step); }
    else if ((event.key === "Enter" || event.key === "Tab") && chosen >= 0) { event.preventDefault(); accept(list.children[chosen]); }
    else if (event.key === "Escape") { list.hidden = true; }
  });
}

document.querySelectorAll("input[data-words]").forEach(attach);

// A cron pattern is explained while it is typed. The server explains it, as it does without a script.
document.querySelectorAll("input[data-explains]").forEach((field) => {
  const root = document.body.dataset.root ?? "", said = document.getElementById(field.dataset.explains);
  let asked = 0, waits;
  async function explain() {
    const mine = ++asked, zone = document.getElementById(field.dataset.zoneField)?.value ?? field.dataset.tz ?? "UTC";
    const query = new URLSearchParams({ pattern: field.value, tz: zone, dst: field.dataset.dst ?? "default" });
    try {
      const answer = await fetch(`${root}/schedules/explain?${query}`);
      if (mine !== asked || !answer.ok) return;
      const { is_valid: isValid, text, next } = await answer.json();
      said.textContent = next.length ? `${text} Next: ${next.join(", ")}.` : text;
      said.classList.toggle("dead", !isValid);
      field.setAttribute("aria-invalid", String(!isValid));
    } catch { /* the button still explains it */ }
  }
  field.addEventListener("input", () => { clearTimeout(waits); waits = setTimeout(explain, 200); });
});

// A tooltip for charts, from their data tables. The pointer and the arrow keys move it.

const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
document.body.append(tip);

function readRows(chart) {
  const names = [...chart.querySelectorAll("details.data thead th")].map((cell) => cell.textContent);
  return [...chart.querySelectorAll("details.data tbody tr")].reverse()
    .map((row) => [...row.cells].map((cell, at) => (at ? `${names[at]} ${cell.textContent}` : cell.textContent)));
}

function show(plot, at) {
  const rows = readRows(plot.closest("[data-chart]"));
  if (!rows.length) return hide();
  const place = Math.max(0, Math.min(rows.length - 1, at)), box = plot.getBoundingClientRect();
  plot.dataset.at = place;
  tip.replaceChildren(...rows[place].map((text, index) => Object.assign(document.createElement(index ? "span" : "b"), { textContent: text })));
  tip.hidden = false;
  const x = box.left + (box.width * (rows.length > 1 ? place / (rows.length - 1) : 0.5));
  tip.style.left = `${Math.max(8, Math.min(x + 12, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${Math.max(8, Math.min(box.top + 24, innerHeight - tip.offsetHeight - 8))}px`;
  plot.setAttribute("aria-description", rows[place].join(", "));
}

const hide = () => { tip.hidden = true; };
const findPlot = (event) => event.target.closest?.("[data-chart] svg.plot");

document.addEventListener("pointermove", (event) => {
  const plot = findPlot(event);
  if (!plot) return tip.hidden || document.activeElement?.matches("svg.plot") ? undefined : hide();
  const box = plot.getBoundingClientRect(), count = readRows(plot.closest("[data-chart]")).length;
  return show(plot, Math.round(((event.clientX - box.left) / box.width) * (count - 1)));
});
document.addEventListener("keydown", (event) => {
  const plot = findPlot(event), step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (event.key === "Escape") hide();
  if (!plot || !step) return;
  event.preventDefault();
  show(plot, Number(plot.dataset.at ?? 1e9) + step);
});
document.addEventListener("focusin", (event) => { if (findPlot(event)) show(findPlot(event), Number(findPlot(event).dataset.at ?? 1e9)); });
document.addEventListener("focusout", hide);
document.addEventListener("scroll", hide, { capture: true, passive: true });

const prepare = () => document.querySelectorAll("[data-chart] svg.plot").forEach((plot) => plot.setAttribute("tabindex", "0"));
document.addEventListener("watchbill:shown", prepare);
prepare();

// Choosing rows of a list: all of a page, a range with Shift, and how many are chosen. The boxes are part of a form, so
// without this script they work one by one.

const boxes = (form) => [...form.querySelectorAll('[data-row] input[type="checkbox"]')];
let last = null;

document.addEventListener("click", (event) => {
  const box = event.target.closest?.('input[type="checkbox"]'), form = box?.closest("form[data-select]");
  if (!form) return;
  if (box.matches("[data-select-all]")) boxes(form).forEach((each) => { each.checked = box.checked; });
  else if (event.shiftKey && last?.isConnected) {
    const all = boxes(form), [from, to] = [all.indexOf(last), all.indexOf(box)].sort((a, b) => a - b);
    all.slice(from, to + 1).forEach((each) => { each.checked = box.checked; });
  }
  last = box;
  count(form);
});

function count(form) {
  const all = boxes(form), chosen = all.filter((box) => box.checked).length;
  form.querySelectorAll("[data-selected]").forEach((word) => { word.textContent = chosen; });
  form.classList.toggle("chosen", chosen > 0);
  for (const box of form.querySelectorAll("[data-select-all]")) {
    box.checked = chosen > 0 && chosen === all.length;
    box.indeterminate = chosen > 0 && chosen < all.length;
  }
}

document.querySelectorAll("form[data-select]").forEach(count);
document.addEventListener("watchbill:shown", () => document.querySelectorAll("form[data-select]").forEach(count));

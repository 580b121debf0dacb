// The graph of a job begins with the job itself in sight; arrow keys go from job to job.

const ARROWS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };

function center() {
  for (const mine of document.querySelectorAll("svg.plot .box.me")) {
    const scroll = mine.closest(".scroll"), box = mine.getBoundingClientRect(), frame = scroll?.getBoundingClientRect();
    if (scroll) scroll.scrollLeft += box.left + box.width / 2 - frame.left - frame.width / 2;
  }
}

document.addEventListener("keydown", (event) => {
  const here = event.target.closest?.("svg.plot a"), way = ARROWS[event.key];
  if (!here || !way) return;
  const from = here.getBoundingClientRect();
  const score = (link) => {
    const box = link.getBoundingClientRect(), x = box.left - from.left, y = box.top - from.top;
    const ahead = x * way[0] + y * way[1];
    return ahead > 1 ? ahead + 3 * Math.abs(x * way[1] + y * way[0]) : Infinity;
  };
  const next = [...here.closest("svg").querySelectorAll("a")].sort((a, b) => score(a) - score(b))[0];
  if (next && score(next) < Infinity) { event.preventDefault(); next.focus(); }
});
document.addEventListener("watchbill:shown", center);
center();

// Changes the theme without loading the page again, tells the server the zone of this browser, and copies texts.

const root = document.body.dataset.root || "/";
const keep = (name, value, seconds) => {
  const secure = location.protocol === "https:" ? "; secure" : "";
  document.cookie = `${name}=${value}; path=${root}; max-age=${seconds}; samesite=lax${secure}`;
};

keep("watchbill_local", encodeURIComponent(Intl.DateTimeFormat().resolvedOptions().timeZone), 31536000);

const NEXT = { system: "dark", dark: "light", light: "system" };
document.querySelector('[data-switches="theme"]')?.addEventListener("click", (event) => {
  event.preventDefault();
  const link = event.currentTarget, theme = NEXT[document.documentElement.dataset.theme ?? "system"];
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  document.querySelector('meta[name="color-scheme"]').content = theme === "system" ? "light dark" : theme;
  keep("watchbill_theme", theme === "system" ? "" : theme, theme === "system" ? 0 : 31536000);
  link.title = `Theme: ${theme}`;
  link.querySelector(".hide").textContent = `Theme: ${theme}. Change to ${NEXT[theme]}`;
});

// A button with `data-copy` copies that text; an empty one copies the address of the page. Without a script, or where
// the browser does not let pages copy, it stays hidden.
const showCopies = () => { if (navigator.clipboard) document.querySelectorAll("[data-copy][hidden]").forEach((button) => { button.hidden = false; }); };
document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(button.dataset.copy || location.href);
  const said = document.createElement("span");
  said.className = "small muted";
  said.setAttribute("role", "status");
  button.after(said);
  said.textContent = "copied";
  setTimeout(() => said.remove(), 2000);
});
document.addEventListener("watchbill:shown", showCopies);
showCopies();

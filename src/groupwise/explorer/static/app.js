// The frame: addresses, pages, theme, and the polling of a run that is not finished.

import { budget } from "./budget.js";
import { redrawAll } from "./chart.js";
import { compare } from "./compare.js";
import { completion } from "./completion.js";
import { Trouble, exported, facts, takeToken } from "./data.js";
import { h, put } from "./dom.js";
import { group } from "./group.js";
import { learn } from "./learn.js";
import { overlay } from "./overlay.js";
import { pipeline } from "./pipeline.js";
import { process } from "./process.js";
import { run } from "./run.js";
import { runs } from "./runs.js";
import { step } from "./step.js";

const POLL_MS = 4000;
const PAGES = [
  [/^\/$/, runs], [/^\/learn$/, learn], [/^\/compare$/, compare], [/^\/overlay$/, overlay],
  [/^\/pipeline\/(\d+)$/, pipeline], [/^\/budget\/(\d+)$/, budget], [/^\/process\/(\d+)$/, process], [/^\/run\/(\d+)$/, run],
  [/^\/run\/(\d+)\/at\/(s\d+|e[0-9a-f]{12})$/, step],
  [/^\/run\/(\d+)\/at\/(s\d+|e[0-9a-f]{12})\/([0-9a-f]{12})$/, group],
  [/^\/run\/(\d+)\/at\/(s\d+|e[0-9a-f]{12})\/([0-9a-f]{12})\/(\d+)$/, completion],
];

const root = document.getElementById("main");
let visit = 0;
let timer = null;

function address() {
  const [path, query = ""] = location.hash.replace(/^#/, "").split("?");
  return { path: path || "/", query: new URLSearchParams(query) };
}

function navigation(path) {
  const link = (href, name, here) => h("a", { href: `#${href}`, "aria-current": here ? "page" : null }, name);
  put(document.getElementById("nav"), link("/", "Runs", path === "/" || /^\/(run|pipeline|budget|process)\//.test(path)),
    link("/learn", "Learn", path === "/learn"), link("/compare", "Compare", path === "/compare"), link("/overlay", "Overlay", path === "/overlay"));
}

const replace = (query) => {
  const text = query.toString();
  history.replaceState(null, "", `#${address().path}${text ? `?${text}` : ""}`);
};

async function show(isPoll = false) {
  const mine = isPoll ? visit : (visit += 1);
  clearTimeout(timer);
  const { path, query } = address();
  if (!isPoll) navigation(path);
  const [match, page] = PAGES.map(([pattern, page]) => [pattern.exec(path), page]).find(([match]) => match) ?? [];
  const context = { query, replace, facts, isPoll, isCurrent: () => mine === visit, poll: () => {
    if (!exported()) timer = setTimeout(() => show(true), POLL_MS);
  } };
  try {
    if (!page) throw new Trouble(`There is no page ${path}.`);
    if (page === learn) learn(root, query, replace);
    else await page(root, match.slice(1), context);
  } catch (error) {
    if (!(error instanceof Trouble)) throw error;
    if (mine !== visit) return;
    if (isPoll) { context.poll(); return; }
    put(root, h("p", { class: "notice", role: "alert" }, error.message), h("p", {}, h("a", { href: "#/" }, "All runs"), " · ",
      h("a", { href: "#/learn" }, "Learn")));
  }
  if (!isPoll && mine === visit) { root.focus({ preventScroll: true }); scrollTo(0, 0); }
}

function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const element = document.documentElement;
  const now = element.dataset.theme ?? (dark ? "dark" : "light");
  element.dataset.theme = now === "dark" ? "light" : "dark";
  redrawAll();
}

takeToken();
const themeButton = document.getElementById("theme");
themeButton.hidden = false;
themeButton.addEventListener("click", theme);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); root.focus(); });
addEventListener("hashchange", () => { takeToken(); show(); });
put(root, h("p", { class: "hint" }, "Loading …"));
/** Where no page is asked for, that of the one run or pipeline which the command was given. */
async function start() {
  if (address().path === "/") {
    const { value } = await facts("start").catch(() => ({ value: "/" }));
    history.replaceState(null, "", `#${value}`);
  }
  show();
}
start();

// One run: what changed, how its figures went, what the doctor says, where its completions are.

import { lines } from "./chart.js";
import { h, number, percent, put, shown } from "./dom.js";
import { panels } from "./panels.js";
import { crumbs, notices, placeName, progress } from "./pieces.js";
import { asked, described, folded, section, tiles } from "./tables.js";

const FIRST = ["reward", "correct", "length", "truncated", "entropy", "signal", "grad_norm", "kl", "clipped", "loss"];
const MOST_CHARTS = 200;
const rank = (name) => { const at = FIRST.indexOf(name); return at < 0 ? FIRST.length : at; };
const first = (value) => (Array.isArray(value) ? value[0] : value);

/** Opens the step of a chart's x, or the dev evaluation after so many steps. */
const open = (run) => (x) => {
  const dev = `dev-step-${String(x).padStart(6, "0")}`;
  const place = run.places.find((one) => one.step === x) ?? run.places.find((one) => one.name === dev);
  if (place) location.hash = `/run/${run.index}/at/${place.id}`;
};

const chart = (run, name) => h("section", { class: "card metric", "data-metric": name }, h("h3", {}, shown(name)), lines([{ name: shown(name), x: run.metrics.steps, values: run.metrics.columns[name].map(first) }], {
  label: `${name} over ${run.metrics.steps.length} steps`, onpick: open(run), sync: "steps",
}));

function evaluations(run) {
  const places = run.places.filter((place) => place.step === null);
  if (!places.length) return null;
  return section("Evaluations", "", h("ul", { class: "card places" }, places.map((place) => h("li", {},
    h("a", { href: `#/run/${run.index}/at/${place.id}` }, shown(place.name)),
    place.pass_at_1 === null ? null : ` · pass@1 ${percent(place.pass_at_1)}`))));
}

const finding = (one) => h("li", { class: "finding" }, h("p", {}, h("strong", {}, `${one.severity} · `), shown(one.says), h("small", {}, ` ${one.rule}`)),
  h("p", {}, shown(`${one.explanation}.`)),
  one.advice.length ? h("p", {}, "Try, one at a time: ", shown(one.advice.join("; "))) : null,
  one.evidence.length ? h("p", {}, "See: ", one.evidence.map((place, i) => [i ? ", " : null,
    place.address ? h("a", { href: `#${place.address}` }, shown(place.text)) : shown(place.text)])) : null);

/** The doctor's findings, which come after the page: they read more than it needs. */
async function diagnose(place, index, context) {
  const { value } = await context.facts(`runs/${index}/findings`);
  if (!context.isCurrent()) return;
  put(place, h("h2", {}, "What the doctor says"), notices(value.notices),
    value.findings.length ? h("ul", {}, value.findings.map(finding)) : value.notices.length ? null : h("p", {}, "Nothing was found."),
    value.not_judged.length ? h("p", { class: "hint" }, shown(`Not judged, for what was not recorded: ${value.not_judged.join("; ")}.`)) : null);
}

const passage = ([before, marked, after]) => h("div", { class: "text passage", dir: "auto" }, shown(before), marked ? h("mark", {}, shown(marked)) : null, shown(after));

const definition = (one) => h("details", {}, h("summary", {}, h("b", {}, shown(one.name)), ` ${shown(one.meaning)}`),
  one.phrases.length ? h("p", { class: "hint" }, "Phrases: ", one.phrases.map((phrase) => [h("code", {}, shown(phrase)), " "])) : null,
  one.passages.length ? one.passages.map(passage) : h("p", { class: "hint" }, one.measured ? "No completion shows it." : "Not measured."));

/** The report comes after the page, too: it reads every evaluation. */
async function report(run, place, context) {
  const { value } = await context.facts(`runs/${run.index}/report`);
  if (!context.isCurrent()) return;
  if (value.error) { put(place.head, notices([value.error])); return; }
  put(place.head, h("p", { class: "lead" }, shown(value.description)), tiles(value.tiles), h("p", { class: "hint" }, shown(value.compared)),
    value.alarms.length ? notices([`Alarm, reward hacking: the second verifier rejects what training pays, after ${value.alarms.join(", ")} steps.`]) : null);
  put(place.panels, panels(run, value, open(run)));
  const tables = new Map(value.tables.map((table) => [table.title, table]));
  const of = (name) => (tables.has(name) ? described(tables.get(name)) : null);
  put(place.tables, of("Before and after"), of("Problems gained and lost"), of("Any of k tries"),
    value.problems.length ? section("The same problems, before and after", "Chosen for the largest changes: they show how the answers changed, not how often. Each side is the first of its samples.", value.problems.map((one) => asked(one))) : null,
    of("Second verifier"), of("Behaviour"), value.definitions.length ? section("What counts as a behaviour", "With the first completions that show it.", h("div", { class: "card definitions" }, value.definitions.map(definition))) : null, of("Training"), of("The run"),
    folded("Settings", value.settings), folded("Environment", value.environment));
}

function figures(run, filter) {
  const names = Object.keys(run.metrics.columns).filter((name) => name.includes(filter)).sort((a, b) => rank(a) - rank(b));
  const chosen = names.filter((name) => filter || rank(name) < FIRST.length).slice(0, MOST_CHARTS);
  const others = names.filter((name) => !chosen.includes(name));
  const more = h("div", { class: "grid" });
  const fill = () => { if (!more.firstChild) put(more, others.slice(0, MOST_CHARTS).map((name) => chart(run, name))); };
  return [h("div", { class: "grid" }, chosen.map((name) => chart(run, name))), others.length && !filter ? h("details", {
    ontoggle: fill, id: "more", vars: { "margin-top": "1rem" } }, h("summary", {}, `${others.length} more figures`), more) : null];
}

export async function run(root, [index], context) {
  const { value, changed } = await context.facts(`runs/${index}`);
  if (!context.isCurrent()) return;
  if (context.isPoll && (!changed || root.querySelector(".metric :focus, #filter:focus, details[open]"))) { context.poll(); return; }
  const steps = value.places.filter((place) => place.step !== null);
  const grid = h("div", {});
  const scroll = scrollY;
  const filter = h("input", { id: "filter", type: "search", value: context.query.get("q") ?? "", oninput: (event) => {
    context.query.set("q", event.target.value);
    context.replace(context.query);
    put(grid, figures(value, event.target.value));
  } });
  put(grid, figures(value, filter.value));
  const doctor = h("section", { class: "card", id: "doctor", "aria-live": "polite" }, h("h2", {}, "What the doctor says"), h("p", {}, "…"));
  const place = { head: h("div", { id: "report" }), panels: h("div", { class: "grid wide panels" }, panels(value, null, open(value))), tables: h("div", { id: "tables" }) };
  put(root, crumbs([["Runs", "#/"], [value.name, null]]), h("header", { class: "title" }, h("p", { class: "eyebrow" }, `${value.algorithm ?? "Run"} · ${value.finished ? "finished" : "unfinished"}`),
    h("h1", {}, shown(value.name)), h("p", {}, shown(value.path))),
  h("div", { vars: { "margin-top": "1.2rem" } }, notices(value.notices)),
  place.head,
  h("dl", { class: "facts small" }, [["steps", progress(value)], ["task", value.task ?? "–"], ["model", value.model ?? "–"],
    ["seed", number(value.seed)]].map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, shown(text))))),
  place.panels, doctor, place.tables,
  section("Every figure, step by step", "Drag to zoom, double-click to see all; a click, or Enter, opens the step.", h("div", { class: "tools" }, h("label", {}, "Find a figure", filter), steps.length ? h("label", {}, "Open a step", h("select", {
    id: "steps", onchange: (event) => { if (event.target.value) location.hash = `/run/${index}/at/${event.target.value}`; },
  }, h("option", { value: "" }, "choose"), steps.map((one) => h("option", { value: one.id }, placeName(one))))) : null), grid),
  value.selection ? h("p", { class: "hint", id: "selection" }, shown(value.selection)) : null, evaluations(value));
  if (context.isPoll) scrollTo(0, scroll);
  diagnose(doctor, index, context).catch((error) => put(doctor, h("h2", {}, "What the doctor says"), notices([error.message])));
  report(value, place, context).catch((error) => put(place.head, notices([error.message])));
  if (!value.finished) context.poll();
}

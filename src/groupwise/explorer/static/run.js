// One run: what it is, how its figures went, where its completions are.

import { lines } from "./chart.js";
import { h, number, percent, put, shown } from "./dom.js";
import { crumbs, notices, placeName, progress } from "./pieces.js";

const FIRST = ["reward", "correct", "length", "truncated", "entropy", "grad_norm", "kl", "clipped"];
const MOST_CHARTS = 200;
const rank = (name) => { const at = FIRST.indexOf(name); return at < 0 ? FIRST.length : at; };

function chart(run, name) {
  const values = run.metrics.columns[name];
  const steps = run.metrics.steps;
  return h("section", { class: "card metric", "data-metric": name }, h("h2", {}, shown(name)), lines([{ name, values, tone: "" }], {
    label: `${name} over ${steps.length} steps`, x: steps, steps, width: 400, onpick: (i) => {
      const place = run.places.find((one) => one.step === steps[i]);
      if (place) location.hash = `/run/${run.index}/at/${place.id}`;
    },
  }));
}

/** pass@1 of every dev evaluation over the steps before it; a click leads to it. */
function dev(run) {
  const found = run.places.map((place) => ({ ...place, at: Number(/^dev-step-(\d+)$/.exec(place.name)?.[1] ?? NaN) })).filter((place) => place.at >= 0 && place.pass_at_1 !== null);
  const steps = found.map((place) => place.at);
  return found.length < 2 ? null : h("section", { class: "card metric", "data-metric": "dev pass@1" }, h("h2", {}, "dev pass@1"), lines([{ name: "dev pass@1", values: found.map((place) => place.pass_at_1), tone: "" }], {
    label: `dev pass@1 of ${found.length} evaluations`, x: steps, steps, width: 400, onpick: (i) => { location.hash = `/run/${run.index}/at/${found[i].id}`; },
  }));
}

function evaluations(run) {
  const places = run.places.filter((place) => place.step === null);
  if (!places.length) return null;
  return h("section", { class: "card" }, h("h2", {}, "Evaluations"), h("ul", {}, places.map((place) => h("li", {},
    h("a", { href: `#/run/${run.index}/at/${place.id}` }, shown(place.name)),
    place.pass_at_1 === null ? null : ` · pass@1 ${percent(place.pass_at_1)}`))));
}

const finding = (one) => h("li", { class: "finding" }, h("p", {}, h("strong", {}, `${one.severity} · `), shown(one.says), h("small", {}, ` ${one.rule}`)),
  h("p", {}, shown(`${one.explanation}.`)),
  one.advice.length ? h("p", {}, "Try, one at a time: ", shown(one.advice.join("; "))) : null,
  one.evidence.length ? h("p", {}, "See: ", one.evidence.map((place, i) => [i ? ", " : null,
    place.address ? h("a", { href: `#${place.address}` }, shown(place.text)) : shown(place.text)])) : null);

/** What the doctor says. It reads more than the page needs, so the page does not wait for it. */
async function diagnose(section, index, context) {
  const { value } = await context.facts(`runs/${index}/findings`);
  if (!context.isCurrent()) return;
  put(section, h("h2", {}, "What the doctor says"), notices(value.notices),
    value.findings.length ? h("ul", {}, value.findings.map(finding)) : value.notices.length ? null : h("p", {}, "Nothing was found."),
    value.not_judged.length ? h("p", { class: "hint" }, shown(`Not judged, for what was not recorded: ${value.not_judged.join("; ")}.`)) : null);
}

function content(run, filter) {
  const names = Object.keys(run.metrics.columns).filter((name) => name.includes(filter)).sort((a, b) => rank(a) - rank(b));
  const first = names.filter((name) => filter || rank(name) < FIRST.length).slice(0, MOST_CHARTS);
  const others = names.filter((name) => !first.includes(name));
  const more = h("div", { class: "grid" });
  const fill = () => { if (!more.firstChild) put(more, others.slice(0, MOST_CHARTS).map((name) => chart(run, name))); };
  return [h("div", { class: "grid" }, "dev pass@1".includes(filter) ? dev(run) : null, first.map((name) => chart(run, name))), others.length && !filter ? h("details", {
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
    put(grid, content(value, event.target.value));
  } });
  put(grid, content(value, filter.value));
  const doctor = h("section", { class: "card", id: "doctor", "aria-live": "polite" }, h("h2", {}, "What the doctor says"), h("p", {}, "…"));
  put(root, crumbs([["Runs", "#/"], [value.name, null]]), h("header", { class: "title" }, h("p", { class: "eyebrow" }, `${value.algorithm ?? "Run"} · ${value.finished ? "finished" : "unfinished"}`),
    h("h1", {}, shown(value.name)), h("p", {}, shown(value.path))),
  h("div", { vars: { "margin-top": "1.2rem" } }, notices(value.notices)),
  h("dl", { class: "facts" }, [["steps", progress(value)], ["task", value.task ?? "–"], ["model", value.model ?? "–"],
    ["seed", number(value.seed)]].map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", {}, shown(text))))),
  h("div", { class: "tools" }, h("label", {}, "Find a figure", filter), steps.length ? h("label", {}, "Open a step", h("select", {
    id: "steps", onchange: (event) => { if (event.target.value) location.hash = `/run/${index}/at/${event.target.value}`; },
  }, h("option", { value: "" }, "choose"), steps.map((place) => h("option", { value: place.id }, placeName(place))))) : null),
  doctor, h("div", { vars: { "margin-top": "1rem" } }, grid), h("div", { vars: { "margin-top": "1rem" } }, evaluations(value)));
  if (context.isPoll) scrollTo(0, scroll);
  diagnose(doctor, index, context).catch((error) => put(doctor, h("h2", {}, "What the doctor says"), notices([error.message])));
  if (!value.finished) context.poll();
}

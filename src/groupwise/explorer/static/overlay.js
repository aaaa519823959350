// Several runs over the same steps, and the band that seeds alone make of one recipe.

import { lines } from "./chart.js";
import { h, number, put, shown } from "./dom.js";
import { crumbs, notices } from "./pieces.js";

const FIGURES = ["reward", "correct", "length", "truncated", "entropy", "grad_norm", "kl", "clipped"];
const TONES = 6;
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

/** Values of every run at the union of their steps, null where a run has none: {steps, values: [[...], ...]}. */
export function aligned(runs, name) {
  const steps = [...new Set(runs.flatMap((run) => run.metrics.steps))].sort((a, b) => a - b);
  const values = runs.map((run) => {
    const at = new Map(run.metrics.steps.map((step, i) => [step, [run.metrics.columns[name]?.[i] ?? null].flat()[0]]));
    return steps.map((step) => at.get(step) ?? null);
  });
  return { steps, values };
}

/** Of runs of one recipe: at each step that all of them have, the mean, the smallest and the largest value. */
export function band(values) {
  const count = values[0]?.length ?? 0;
  const found = { low: Array(count).fill(null), mean: Array(count).fill(null), high: Array(count).fill(null) };
  for (let i = 0; i < count; i += 1) {
    const there = values.map((own) => own[i]);
    if (!there.every(known)) continue;
    found.low[i] = Math.min(...there);
    found.high[i] = Math.max(...there);
    found.mean[i] = there.reduce((sum, value) => sum + value, 0) / there.length;
  }
  return found;
}

/** Runs of the same recipe with other seeds, two at least: their places among the runs, of copies of a seed the longest. */
export function families(runs) {
  const found = new Map();
  runs.forEach((run, i) => {
    const seeds = found.get(run.recipe) ?? new Map();
    if (run.recipe) found.set(run.recipe, seeds);
    if (!seeds.has(run.seed) || runs[seeds.get(run.seed)].done < run.done) seeds.set(run.seed, i);
  });
  return [...found.values()].filter((seeds) => seeds.size > 1).map((seeds) => [...seeds.values()]);
}

function figure(runs, name) {
  const { steps, values } = aligned(runs, name);
  if (!values.some((own) => own.some(known))) return null;
  const bands = families(runs).map((places) => ({ places, ...band(places.map((i) => values[i])) })).filter((one) => one.mean.some(known));
  const series = [
    ...runs.map((run, i) => ({ name: shown(run.name), x: steps, values: values[i], tone: `t${i % TONES}` })),
    ...bands.map((one) => ({ name: `mean of ${one.places.length} seeds`, x: steps, values: one.mean, low: one.low, high: one.high, tone: `t${one.places[0] % TONES}`, strong: true })),
  ];
  const said = bands.map((one) => {
    const last = one.mean.findLastIndex(known);
    return `step ${steps[last]}: ${number(one.mean[last])} over ${one.places.length} seeds, from ${number(one.low[last])} to ${number(one.high[last])}`;
  });
  return h("section", { class: "card metric", "data-metric": name }, h("h2", {}, shown(name)),
    lines(series, { label: `${name} of ${runs.length} runs`, height: 180 }),
    said.length ? h("p", { class: "hint" }, said.join("; ")) : null);
}

function legend(runs) {
  const text = (run) => `${run.name} · seed ${number(run.seed)} · ${run.done} steps`;
  return h("ul", { class: "legends" }, runs.map((run, i) => h("li", {}, h("span", { class: `swatch t${i % TONES}`, "aria-hidden": "true" }),
    h("a", { href: `#/run/${run.index}` }, shown(text(run))))));
}

/** What is laid over each other where nobody has chosen: runs of the first one's algorithm. */
const alike = (runs) => runs.filter((run) => run.done > 0).filter((run, _, there) => run.algorithm === there[0].algorithm).slice(0, TONES);

export async function overlay(root, _, context) {
  const { value: every } = await context.facts("runs");
  const wanted = (context.query.get("runs") ?? alike(every).map((run) => run.index).join(",")).split(",").filter(Boolean).map(Number);
  const chosen = every.filter((run) => wanted.includes(run.index) && run.done > 0);
  const runs = await Promise.all(chosen.map(async (run) => (await context.facts(`runs/${run.index}`)).value));
  if (!context.isCurrent()) return;
  const choose = (index, on) => {
    const next = every.map((run) => run.index).filter((i) => (i === index ? on : wanted.includes(i)));
    location.hash = `/overlay?runs=${next.join(",")}`;
  };
  const box = (run) => h("label", {}, h("input", { type: "checkbox", checked: wanted.includes(run.index), "data-run": run.index, disabled: run.done === 0,
    onchange: (event) => choose(run.index, event.target.checked) }), shown(` ${run.name}`));
  const figures = FIGURES.map((name) => figure(runs, name)).filter(Boolean);
  put(root, crumbs([["Runs", "#/"], ["Overlay", null]]), h("header", { class: "title" }, h("p", { class: "eyebrow" }, "Overlay"), h("h1", {}, `${runs.length} ${runs.length === 1 ? "run" : "runs"} over the same steps`)),
    notices(runs.flatMap((run) => run.notices)), h("fieldset", { class: "choices" }, h("legend", {}, "Runs"), every.map(box)), legend(runs),
    h("p", { class: "hint", vars: { "margin-bottom": "1rem" } }, families(runs).length ? "The band reaches from the smallest to the largest value of runs that differ in their seed alone; the strong line is their mean." : "Runs that differ in their seed alone would have a band; there are none here."),
    figures.length ? h("div", { class: "grid" }, figures) : h("p", {}, "There are no figures to lay over each other."));
}

// The panels of a run: what it solves, how long it writes, how it goes about a problem, family by family.

import { lines, smoothed } from "./chart.js";
import { h, shown } from "./dom.js";

const SMOOTH_FROM = 30;
const first = (value) => (Array.isArray(value) ? value[0] : value);
const column = (table, name) => (table.columns[name] ?? []).map((value) => first(value) ?? null);
const has = (table, name) => column(table, name).some((value) => value !== null);

/** A figure of every step: where there are many, the values faintly and their moving mean over them. */
function noisy(table, name, label, tone) {
  if (!has(table, name)) return [];
  const [x, values] = [table.steps, column(table, name)];
  if (values.length < SMOOTH_FROM) return [{ name: label, x, values, tone }];
  return [{ name: `${label}, each step`, x, values, tone, faint: true }, { name: label, x, values: smoothed(values), tone }];
}

/** An estimate of every evaluation with its band. */
const measured = (table, name, label, tone) => (has(table, name) ? [{
  name: label, x: table.steps, tone, values: column(table, name), low: (table.columns[name] ?? []).map((value) => value?.[1] ?? null), high: (table.columns[name] ?? []).map((value) => value?.[2] ?? null),
}] : []);

const solved = (run, seeds) => [
  ...(seeds ? [{ name: `mean of ${seeds.numbers.length} seeds`, x: seeds.steps, values: seeds.mean, low: seeds.low, high: seeds.high, tone: "t4" }] : []),
  ...noisy(run.metrics, "reward", "training reward", "t1"), ...measured(run.dev, "pass_at_1", "dev pass@1", "t0")];

/** Words for what a reward model is right about: pairs of completions, or labels of steps and outcomes. */
const judged = (run) => (run.algorithm === "process_reward_model" ? ["Labels", "Share of labels on whose side the score is.", "labels"] : ["Preferences", "Share of pairs whose better completion scores higher.", "pairs"]);

const preferred = (run) => [...noisy(run.metrics, "accuracy", `training ${judged(run)[2]}`, "t1"), ...measured(run.held_out, "accuracy", `held-out ${judged(run)[2]}`, "t0")];

/** True where y can be shown in per cent. */
const isShare = (series) => series.every((one) => [...one.values, ...(one.high ?? [])].every((value) => value === null || typeof value === "string" || (value >= 0 && value <= 1)));

const panel = (title, note, series, options = {}) => (series.length ? h("section", { class: "card metric", "data-panel": title }, h("h2", {}, title), h("p", { class: "hint" }, note),
  lines(series, { label: `${title} over steps`, height: 220, share: isShare(series), ...options })) : null);

/** The one curve of a run that a pipeline shows. */
export function headlineChart(run) {
  const shares = [solved(run, null), preferred(run)].find((one) => one.length);
  const series = shares ?? noisy(run.metrics, "loss", "loss, nats per token", "t3");  // nats are no share, though they fall below 1
  return series.length ? lines(series, { label: `training of ${run.name}`, share: Boolean(shares) && isShare(series), height: 180 }) : null;
}

/** All panels for which there is something to show; `report` may be null, while it is on its way. */
export function panels(run, report, onpick) {
  const families = Object.keys(run.dev.columns).filter((name) => name.startsWith("families."));
  const behaviour = report?.behaviour ?? { steps: [], columns: {} };
  return [
    panel("Problems solved", "Dev pass@1 with its 95 % interval, and the mean reward in training.", solved(run, report?.seeds), { onpick }),
    panel(...judged(run).slice(0, 2), preferred(run), { onpick }),
    panel("Completion length", "Mean tokens of correct and of wrong completions in training.", [...noisy(run.metrics, "length_wrong", "wrong", "t1"), ...noisy(run.metrics, "length_correct", "correct", "t0")], { onpick, share: false }),
    panel("How it goes about a problem", "Share of dev completions; signs read from their text.", Object.entries(behaviour.columns).filter(([, values]) => values.length > 1)
      .map(([name, values], i) => ({ name: shown(name), x: behaviour.steps, values, tone: `t${i}` }))),
    panel("Family by family", "Dev pass@1 of each family of problems.", families.map((name, i) => ({ name: shown(name.replace("families.", "")), x: run.dev.steps, values: column(run.dev, name), tone: `t${i % 6}` }))),
  ].filter(Boolean);
}

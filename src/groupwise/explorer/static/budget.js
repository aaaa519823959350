// Test-time compute: the accuracy that each method buys for its tokens.

import { lines } from "./chart.js";
import { h, put, shown } from "./dom.js";
import { crumbs, notices } from "./pieces.js";
import { amount, boxed, difference, heads, missing, section, share } from "./tables.js";

const TONES = 6;
/** Names of the methods of the first figure and those of difficulties; the other methods are in the tables. */
const METHODS = {
  "control/perfect": "pass@k", "control/constant": "one sample", greedy: "greedy", majority: "majority", "best_of_n/orm": "best, outcome", "best_of_n/prm_last": "best, steps",
  "weighted/prm_last": "vote, steps", "beam/weighted": "beam, vote", "dvts/weighted": "DVTS, vote", "lookahead/weighted": "lookahead",
};
/** The same choice by scores of steps that are joined in four ways. */
const JOINED = { "control/perfect": "pass@k", "best_of_n/prm_last": "last", "best_of_n/prm_min": "lowest", "best_of_n/prm_product": "product", "best_of_n/prm_mean": "mean" };

/** The lines of the methods that have a name, over the tokens that they sample per problem. */
export function linesOf(points, names, accuracy = (point) => point.accuracy) {
  return Object.entries(names).map(([method, name]) => {
    const own = points.filter((point) => point.method === method && point.policy_tokens > 0 && point.policy_tokens < 1e12 && (accuracy(point)?.[0] ?? null) !== null).sort((a, b) => a.policy_tokens - b.policy_tokens);
    const column = (i) => own.map((point) => accuracy(point)[i] ?? null);
    return { name, x: own.map((point) => point.policy_tokens), values: column(0), low: column(1), high: column(2) };
  }).filter((line) => line.x.length).map((line, i) => ({ ...line, tone: `t${i % TONES}` }));
}

function figure(title, note, series) {
  if (!series.length) return null;
  return h("section", { class: "card metric", "data-figure": title }, h("h2", {}, shown(title)), h("p", { class: "hint" }, note),
    lines(series, { label: `${title}: accuracy over tokens sampled per problem`, xName: "tokens per problem", log: true, share: true, height: 260 }));
}

function table(points, budget) {
  const names = ["method", "accuracy", "over majority, points", "of the way to pass@k", "tokens", "reward tokens", "MFLOP", "ms"];
  return section(`Budget ${budget}`, "", boxed(`budget ${budget}`, heads(names), points.filter((point) => point.budget === budget).map((point) => h("tr", {}, h("th", { scope: "row" }, shown(point.method)), share(point.accuracy), difference(point.over_majority),
    share(point.way), amount(point.policy_tokens, 3), amount(point.reward_tokens, 3), amount(point.operations === undefined ? null : point.operations / 1e6, 3), amount(point.seconds === null ? null : 1000 * point.seconds, 3)))));
}

const DIFFICULTIES = {
  label: "the task’s label", pass_rate: "pass rate, fifths of the problems", pass_rate_absolute: "pass rate, fixed bounds", prm: "process reward model",
};
const mostUsed = (methods) => Object.entries(methods ?? {}).map(([label, counts]) => `${/^\d+$/.test(label) ? "bin " : ""}${label}: ${Object.entries(counts).sort(([, a], [, b]) => b - a)[0]?.[0] ?? "–"}`).join("; ");

function optimal(rows) {
  if (!rows.length) return null;
  const names = ["difficulty by", "budget", "accuracy", "gain over one method for all, points", "tokens", "tokens to know the difficulty", "most used"];
  return section("The best method for each difficulty", "Chosen on the other half of the problems.", boxed("the best method for each difficulty", heads(names), rows.map((row) => h("tr", {}, h("th", { scope: "row" }, shown(Object.hasOwn(DIFFICULTIES, row.difficulty) ? DIFFICULTIES[row.difficulty] : row.difficulty)), amount(row.budget), share(row.accuracy),
    difference(row.gain), amount(row.policy_tokens, 3), amount(row.difficulty_policy_tokens, 3), h("td", {}, shown(mostUsed(row.methods)))))));
}

function equalTokens(rows) {
  if (!rows?.length) return null;
  const names = ["search", "budget", "against", "samples", "difference, points"];
  return section("Searches at equal tokens", "Each less a choice by the same scores among as many samples as its tokens pay for.", boxed("searches at equal tokens", heads(names), rows.map((row) => h("tr", {}, h("th", { scope: "row" }, shown(row.method)), amount(row.budget), h("td", {}, shown(row.against)),
    amount(row.samples), difference(row.difference)))));
}

function flips(rows) {
  if (!rows.length) return null;
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))].filter((name) => name !== "kind");
  const cell = (value) => (Array.isArray(value) ? share(value) : typeof value === "number" ? amount(value) : h("td", {}, shown(value ?? "–")));
  return section("What a further link changes", "How often a right answer became wrong, and a wrong one right.", boxed("what a further link changes", heads(names.map((name) => name.replace(/_/g, " "))), rows.map((row) => h("tr", {}, names.map((name) => cell(row[name]))))));
}

export async function budget(root, [index], context) {
  const { value } = await context.facts(`results/${index}`);
  if (!context.isCurrent()) return;
  if (missing(root, value, "Test-time compute")) return;
  const budgets = [...new Set(value.points.map((point) => point.budget))].sort((a, b) => b - a);
  const labels = [...new Set(value.points.flatMap((point) => Object.keys(point.by_difficulty ?? {})))].sort();
  const joined = linesOf(value.points, JOINED);
  put(root, crumbs([["Runs", "#/"], [value.name, null]]), h("header", { class: "title" }, h("p", { class: "eyebrow" }, "Test-time compute"), h("h1", {}, shown(value.name)), h("p", {}, shown(`${value.settings.checkpoint ?? "?"} on ${value.settings.problems ?? "?"} problems of ${value.settings.task ?? "?"}`))),
    h("div", { vars: { "margin-top": "1rem" } }, notices(value.notices), value.left_out.length ? notices([`Left out, because the verifier judged too few of their samples: ${value.left_out.join(", ")}.`]) : null),
    h("div", { class: "grid wide" }, figure("Accuracy over tokens", "All problems; bands are 95 % intervals over problems.", linesOf(value.points, METHODS)),
      joined.length > 2 ? figure("How the scores of steps are joined", "Best of k by the steps’ scores.", joined) : null,
      labels.length > 1 ? labels.map((label) => figure(`Difficulty: ${label}`, "Problems of this difficulty alone.", linesOf(value.points, METHODS, (point) => point.by_difficulty?.[label]))) : null),
    budgets.map((one) => table(value.points, one)), equalTokens(value.equal_tokens), optimal(value.optimal), flips(value.flips),
    section("Settings", "", h("dl", { class: "settings" }, Object.entries(value.settings).map(([name, text]) => h("div", {}, h("dt", {}, shown(name)), h("dd", {}, shown(text)))))));
}

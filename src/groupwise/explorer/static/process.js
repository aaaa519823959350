// Process reward models side by side: how well each finds mistakes, and what it is worth as a judge.

import { h, put, shown } from "./dom.js";
import { crumbs, notices } from "./pieces.js";
import { amount, boxed, heads, missing, section, share } from "./tables.js";

/** What a figure is called and whether it is a share; docs/do/prm.md says how it is measured. */
const NAMES = {
  f1: ["F1 of finding the first mistake", false], first_error_found: ["first mistake named exactly", true], correct_passed: ["right workings passed", true],
  auc: ["a right step scores above a wrong one", true], calibration_error: ["calibration error", false], threshold: ["threshold below which a step is a mistake", false],
  wrong_working_found: ["right answers with a wrong step: noticed", true], lowest_at_end: ["lowest score is the last step’s", true],
};
const isChoice = (name) => /^(best of|vote of|majority@|pass@)/.test(name);

function rows(figures, pick) {
  return figures.filter(pick).map((figure) => {
    const [name, isShare] = NAMES[figure.name] ?? [figure.name, isChoice(figure.name)];
    return h("tr", { "data-figure": figure.name }, h("th", { scope: "row" }, shown(name)), figure.values.map((value) => (isShare ? share(value) : amount(value ? value[0] : null))));
  });
}

export async function process(root, [index], context) {
  const { value } = await context.facts(`results/${index}`);
  if (!context.isCurrent()) return;
  if (missing(root, value, "Process")) return;
  const head = heads(["", ...value.judges]);
  const part = (title, note, pick) => (value.figures.some(pick) ? section(title, note, boxed(title, head.cloneNode(true), rows(value.figures, pick))) : null);
  put(root, crumbs([["Runs", "#/"], [value.name, null]]), h("header", { class: "title" }, h("p", { class: "eyebrow" }, "Process reward models"), h("h1", {}, shown(value.name)),
    h("p", {}, `${value.judges.filter((name) => name !== "controls").length} side by side on the same labelled steps`)), h("div", { vars: { "margin-top": "1rem" } }, notices(value.notices)),
  part("Finding mistakes", "Against the labels of the steps; 95 % intervals over completions.", (figure) => !isChoice(figure.name)),
  part("As a judge of several completions", "Accuracy of the best-scored of k, and of the answer with the largest sum of scores among them (a vote), for each way to join the scores of steps, beside one completion, the majority of k and a judge that is always right.", (figure) => isChoice(figure.name)));
}

// Learn: one group whose rewards and settings can be changed, with every consequence.

import { ADVANTAGES, AGGREGATIONS, KL_ESTIMATORS, POLICY_LOSSES, mean, policyMoves, std, stepAdvantages }
  from "./arithmetic.js";
import { lines } from "./chart.js";
import { excerpt, h, number, percent, put, shown, signed, titled } from "./dom.js";
import { insight } from "./insight.js";
import { writtenOut } from "./written.js";

const SEED = {
  question: "What is 23 × 17?", reference: "391",
  completions: [
    ["23 × 17 = 23 × 10 + 23 × 7 = 230 + 161 = 391", 1], ["20 × 17 + 3 × 17 = 340 + 51 = 391", 1],
    ["23 × 17 is about 20 × 20, so 400", 0], ["17 × 23 = 17 × 20 + 17 × 3 = 340 + 51 = 391", 1],
    ["23 × 17 = 230 + 151 = 381", 0], ["(20 + 3) × 17 = 340 + 51. The answer is 391", 1],
    ["23 × 7 = 161 and 23 × 1 = 23, together 184", 0], ["23 × 17 = 20² − 3² = 391", 1],
  ].map(([text, reward]) => ({ text, reward, format: 1, length: text.match(/\d|[^\s\d]+/g).length, truncated: false })),
};

const DEFAULTS = {
  estimator: "group_normalised", loss: "clipped_ratio", clip_low: 0.2, clip_high: 0.2, dual_clip: 0, tau_pos: 1,
  tau_neg: 1.05, aggregation: "sequence", kl_coef: 0, kl_estimator: "k3", kl_corrected: false, step_size: 2,
  epochs: 1, max_tokens: 64, others: "1 0 0 0 1 0 0 0",
};
const CHOICES = { estimator: ADVANTAGES, loss: POLICY_LOSSES, aggregation: AGGREGATIONS, kl_estimator: KL_ESTIMATORS };
const LIMITS = {
  clip_low: [0, 1, 0.01], clip_high: [0, 5, 0.01], dual_clip: [0, 10, 0.5], tau_pos: [0.05, 20, 0.05],
  tau_neg: [0.05, 20, 0.05], kl_coef: [0, 10, 0.01], step_size: [0, 100, 0.5], epochs: [1, 40, 1],
  max_tokens: [1, 100000, 1],
};
const LABELS = {
  estimator: "Advantage", loss: "Policy loss", clip_low: "clip_low", clip_high: "clip_high", dual_clip: "dual_clip (0: off)",
  tau_pos: "τ where Â > 0", tau_neg: "τ where Â ≤ 0", aggregation: "Aggregation", kl_coef: "KL coefficient",
  kl_estimator: "KL estimator", kl_corrected: "KL times the ratio", step_size: "Step size", epochs: "Updates per group",
  max_tokens: "max_tokens", others: "Rewards of the step’s other group",
};
const PAPERS = {
  group_mean: "Âᵢ = rᵢ − mean(r) · Dr. GRPO", group_normalised: "Âᵢ = (rᵢ − mean(r)) / std(r) · GRPO",
  group_normalised_sample: "the same with divisor G − 1 · TRL, verl", leave_one_out: "Âᵢ = rᵢ − mean of the others · RLOO",
  divided_by_mean: "Âᵢ = (rᵢ − mean(r)) / mean(r) · MaxRL", none: "Âᵢ = rᵢ · REINFORCE",
  batch_mean: "Âᵢ = rᵢ − mean over the step", batch_normalised: "(rᵢ − step’s mean) / step’s std · REINFORCE++",
  batch_std: "(rᵢ − group’s mean) / step’s std · Lite PPO", parts_normalised: "each part normalised, then summed · GDPO",
};

const MOST = 64;
const MOST_REWARD = 1e6;

/** A reward that arithmetic can work with; what is no number is 0. */
const bounded = (value) => (Number.isFinite(value) ? Math.min(Math.max(value, -MOST_REWARD), MOST_REWARD) : 0);

let copied = null;

/** Keep a group from a run for the next visit of this page. */
export function whatIf(group) { copied = group; }

function fromQuery(query) {
  const source = query.get("from") === "run" && copied ? copied : SEED;
  const state = { ...DEFAULTS, ...(source.settings ?? {}), question: source.question, reference: source.reference, selected: 0,
    group: source.completions.map((one) => ({ ...one })) };
  for (const name of Object.keys(CHOICES)) if (Object.hasOwn(CHOICES[name], query.get(name))) state[name] = query.get(name);
  for (const [name, [low, high]] of Object.entries(LIMITS)) {
    const value = Number.parseFloat(query.get(name));
    if (Number.isFinite(value)) state[name] = Math.min(Math.max(value, low), high);
  }
  state.kl_corrected = query.get("kl_corrected") === "1";
  if (/^[-\d. ]{1,400}$/.test(query.get("others") ?? "")) state.others = query.get("others");
  const rewards = (query.get("rewards") ?? "").split(",").filter((text) => text !== "").slice(0, MOST);
  const next = rewards.map((text, i) => ({
    ...(state.group[i] ?? blank(i)), reward: text === "x" ? null : bounded(Number.parseFloat(text)),
  }));
  if (next.length) state.group = next;
  return state;
}

const blank = (i) => ({ text: `completion ${i + 1}`, reward: 0, format: 1, length: 30, truncated: false });

function toQuery(state, query) {
  const next = new URLSearchParams();
  if (query.get("from")) next.set("from", query.get("from"));
  next.set("rewards", state.group.map((one) => (one.reward === null ? "x" : one.reward)).join(","));
  for (const name of [...Object.keys(CHOICES), ...Object.keys(LIMITS), "others"]) {
    if (state[name] !== DEFAULTS[name]) next.set(name, state[name]);
  }
  if (state.kl_corrected) next.set("kl_corrected", "1");
  return next;
}

/** All that follows from rewards and settings. */
export function consequences(state) {
  const others = state.others.split(/\s+/).filter(Boolean).map(Number).filter(Number.isFinite).map(bounded);
  const usesParts = state.estimator === "parts_normalised";
  const rewards = state.group.map((one) => (one.reward === null ? null : one.reward + (usesParts ? one.format : 0)));
  const parts = state.group.map((one) => (usesParts ? [one.reward ?? 0, one.format] : [one.reward ?? 0]));
  const needsStep = state.estimator.startsWith("batch_");
  const groups = needsStep && others.length ? [rewards, others] : [rewards];
  const partGroups = needsStep && others.length ? [parts, others.map((reward) => [reward])] : [parts];
  const advantages = stepAdvantages(state.estimator, groups, partGroups)[0];
  const judged = rewards.filter((reward) => reward !== null);
  const step = groups.flat().filter((reward) => reward !== null);
  return { rewards, judged, step, advantages, ...policyMoves(advantages, state.group.map((one) => one.length), state) };
}

const bar = (share, className, label) =>
  h("span", { class: `bar ${className}`, vars: { "--share": Math.min(Math.max(share, 0), 1) }, title: label });

function advantageBar(value, largest) {
  const share = value === null || !largest ? 0 : Math.abs(value) / largest;
  return h("span", { class: `diverging ${value < 0 ? "low" : "high"}`, "aria-hidden": "true", vars: { "--share": share } },
    h("i", {}));
}

function rewardCell(state, i, change) {
  const one = state.group[i];
  const set = (reward) => change(() => { state.group[i].reward = reward; state.selected = i; });
  const verdict = one.reward === null ? "no verdict" : one.reward > 0 ? "right" : "wrong";
  const mark = { right: "✓", wrong: "✗", "no verdict": "?" }[verdict];
  return h("div", { class: "reward" },
    h("button", {
      class: `verdict ${verdict.replace(" ", "-")}`, id: `toggle-${i}`, "data-reward": i,
      "aria-label": `completion ${i + 1} is ${verdict}; press to change`,
      onclick: () => set(one.reward === null ? 1 : one.reward > 0 ? 0 : 1),
    }, mark),
    h("input", {
      type: "number", step: "0.1", id: `reward-${i}`, "aria-label": `reward of completion ${i + 1}`,
      value: one.reward ?? "", placeholder: "–",
      onchange: (event) => { const value = event.target.valueAsNumber; set(Number.isFinite(value) ? bounded(value) : null); },
    }));
}

function rows(state, result, change) {
  const last = result.moves.at(-1);
  const largest = Math.max(...result.advantages.map((value) => Math.abs(value ?? 0)));
  const top = Math.max(...result.moves[0].policy, ...last.policy);
  const usesParts = state.estimator === "parts_normalised";
  return state.group.map((one, i) => h("tr", {
    class: i === state.selected ? "selected" : "", onclick: (event) => {
      if (!event.target.closest("button, input")) change(() => { state.selected = i; });
    },
  },
  h("th", { scope: "row" }, h("button", {
    class: "quiet", id: `select-${i}`, "aria-pressed": String(i === state.selected), "aria-label": `arithmetic of completion ${i + 1}`,
    onclick: () => change(() => { state.selected = i; }),
  }, String(i + 1))),
  h("td", { class: "sample" }, h("span", { dir: "auto", title: "" }, shown(one.text.slice(0, 400))),
    h("small", {}, `${one.length} tokens${one.truncated ? " · ran into the limit" : ""}`)),
  h("td", {}, rewardCell(state, i, change), usesParts && h("label", { class: "part" }, "format ", h("input", {
    type: "number", step: "0.1", id: `format-${i}`, value: one.format,
    onchange: (event) => change(() => { one.format = bounded(event.target.valueAsNumber); }),
  }))),
  h("td", { class: "figure" }, advantageBar(result.advantages[i], largest),
    h("b", { "data-advantage": result.advantages[i] ?? "", id: `advantage-${i}` }, signed(result.advantages[i]))),
  h("td", { class: "figure weight" }, percent(result.weights[i])),
  h("td", { class: "policy" },
    h("div", {}, bar(result.moves[0].policy[i] / top, "before", "before"), h("span", {}, percent(result.moves[0].policy[i]))),
    h("div", {}, bar(last.policy[i] / top, last.policy[i] >= result.moves[0].policy[i] ? "gain" : "loss", "after"),
      h("span", { "data-after": last.policy[i] }, percent(last.policy[i]),
        last.clipped[i] ? h("em", { title: "a bound holds: no further gradient" }, " clipped") : null)))));
}

function control(state, name, change) {
  const id = `set-${name}`;
  const label = h("label", { for: id }, LABELS[name]);
  if (CHOICES[name]) {
    return h("div", { class: "control" }, label, h("select", {
      id, onchange: (event) => change(() => { state[name] = event.target.value; }),
    }, Object.keys(CHOICES[name]).map((kind) => h("option", { value: kind, selected: kind === state[name] }, kind))));
  }
  if (name === "kl_corrected") {
    return h("div", { class: "control" }, label, h("input", {
      id, type: "checkbox", checked: state[name], onchange: (event) => change(() => { state[name] = event.target.checked; }),
    }));
  }
  if (name === "others") {
    return h("div", { class: "control wide" }, label, h("input", {
      id, type: "text", value: state[name], onchange: (event) => change(() => { state[name] = event.target.value; }),
    }));
  }
  const [low, high, step] = LIMITS[name];
  return h("div", { class: "control" }, label, h("input", {
    id, type: "number", min: low, max: high, step: "any", "data-step": step, value: state[name],
    onchange: (event) => change(() => {
      const value = event.target.valueAsNumber;
      if (Number.isFinite(value)) event.target.value = state[name] = Math.min(Math.max(name === "epochs" ? Math.round(value) : value, low), high);
    }),
  }));
}

const DIALS = { clipped_ratio: ["clip_low", "clip_high", "dual_clip"], sequence_ratio: ["clip_low", "clip_high", "dual_clip"],
  clipped_weight: ["clip_low", "clip_high"], soft_gate: ["tau_pos", "tau_neg"], reinforce: [] };

/** What decides which controls there are: while it stays, they stay, and whoever types into one is not disturbed. */
const structure = (state) => [state.estimator.startsWith("batch_"), DIALS[state.loss], state.aggregation === "constant", state.kl_coef > 0].join(" ");

function controls(state, change) {
  const dials = DIALS[state.loss];
  const size = h("div", { class: "control" }, h("label", { for: "set-size" }, "Group size"), h("input", {
    id: "set-size", type: "number", min: 1, max: MOST, value: state.group.length, onchange: (event) => change(() => {
      const wanted = Math.min(Math.max(Math.round(event.target.valueAsNumber) || 1, 1), MOST);
      while (state.group.length < wanted) state.group.push(blank(state.group.length));
      event.target.value = state.group.length = wanted;
      state.selected = Math.min(state.selected, wanted - 1);
    }),
  }));
  const one = (name) => control(state, name, change);
  return [
    h("fieldset", {}, h("legend", {}, "Group"), size, one("estimator"), h("p", { class: "hint", id: "formula" }, PAPERS[state.estimator]),
      state.estimator.startsWith("batch_") && one("others")),
    h("fieldset", {}, h("legend", {}, "Loss"), one("loss"), dials.map(one), one("aggregation"),
      state.aggregation === "constant" && one("max_tokens")),
    h("fieldset", {}, h("legend", {}, "KL to the start"), one("kl_coef"), state.kl_coef > 0 && [one("kl_estimator"), one("kl_corrected")]),
    h("fieldset", {}, h("legend", {}, "Update"), one("step_size"), one("epochs")),
  ];
}

function facts(state, result) {
  const last = result.moves.at(-1);
  const total = last.policy.reduce((a, b) => a + b, 0);
  const deviation = result.judged.length ? std(result.judged) : NaN;
  return h("dl", { class: "facts" },
    h("div", {}, h("dt", {}, "mean reward"), h("dd", { id: "mean" }, result.judged.length ? mean(result.judged).toFixed(3) : "–")),
    h("div", {}, h("dt", {}, "standard deviation"), h("dd", { id: "std" }, Number.isNaN(deviation) ? "–" : deviation.toFixed(3))),
    h("div", {}, h("dt", {}, "policy after"), h("dd", { id: "total", title: "the sum over the group" }, percent(total, 0))),
    h("div", {}, h("dt", {}, "clipped"), h("dd", {}, `${last.clipped.filter(Boolean).length} of ${state.group.length}`)));
}

function arithmetic(state, result) {
  const i = state.selected;
  const weight = result.weights[i];
  const last = result.moves.at(-1);
  const text = result.advantages[i] === null
    ? ["The verifier failed: no reward, no advantage, no part of the loss."]
    : writtenOut(state.estimator, result.judged, result.step, result.rewards[i], result.advantages[i]);
  const before = percent(result.moves[0].policy[i]);
  return h("section", { class: "card" }, h("h2", {}, `The arithmetic of completion ${i + 1}`),
    h("ol", { class: "terms", "aria-live": "polite" }, text.map((line) => h("li", {}, line)),
      h("li", {}, `weight of its ${state.group[i].length} tokens in the loss = ${percent(weight)}`),
      h("li", {}, `π before = 1 / ${state.group.length} = ${before}; after ${state.epochs} update${state.epochs === 1 ? "" : "s"} `
        + `${percent(last.policy[i])}; ratio ρ = ${number(last.ratio[i])}${last.clipped[i] ? ", held by its bound" : ""}`)),
    h("p", { class: "hint" }, "The policy is a softmax over these completions alone: what one gains the others lose, and all tokens of "
      + "a completion share its ratio. In a network, completions share weights, and tokens move one by one."));
}

function epochs(state, result) {
  const x = result.moves.map((_, i) => i);
  const series = state.group.map((_, i) => ({
    name: `completion ${i + 1}`, x, values: result.moves.map((move) => move.ratio[i]), marks: x.filter((at) => result.moves[at].clipped[i]),
    tone: result.advantages[i] === null || Math.abs(result.advantages[i]) < 1e-12 ? "flat" : result.advantages[i] > 0 ? "high" : "low",
    strong: i === state.selected,
  }));
  const bounded = ["clipped_ratio", "sequence_ratio", "clipped_weight"].includes(state.loss);
  return h("section", { class: "card" }, h("h2", {}, "The ratio after each update"),
    lines(series, {
      label: "ratio of each completion after each update", xName: "update", height: 240,
      bounds: bounded ? [1 - state.clip_low, 1 + state.clip_high] : [],
    }),
    h("p", { class: "hint" }, bounded
      ? `Between the dashed bounds, ${number(1 - state.clip_low)} and ${number(1 + state.clip_high)}, the gradient flows. `
        + (state.loss === "clipped_weight" ? "Beyond them its weight stays the bound’s." : "A ring marks where a bound has stopped it.")
      : "This loss has no bounds: set several updates per group to see the ratio run away or its gate close."));
}

/** Show the page; `query` is the address's, `replace(query)` keeps it in step. */
export function learn(root, query, replace) {
  const state = fromQuery(query);
  const table = h("tbody", {});
  const place = { lead: h("div", {}), facts: h("div", {}), terms: h("div", {}), epochs: h("div", {}), controls: h("form", {
    class: "controls", onsubmit: (event) => event.preventDefault(), "aria-label": "settings" }) };
  let built = null;
  const settings = () => {
    if (built !== structure(state)) put(place.controls, controls(state, change));
    else document.getElementById("formula").textContent = PAPERS[state.estimator];
    built = structure(state);
  };
  const draw = () => {
    const focused = document.activeElement?.id;
    let result;
    try {
      result = consequences(state);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      put(place.lead, h("p", { class: "lead", role: "alert" }, `This estimator cannot be used here: ${error.message}.`));
      settings();
      return;
    }
    const said = insight(state.group, state.estimator);
    put(place.lead, h("p", { class: "lead", "aria-live": "polite", "data-insight": said.kind }, said.text),
      said.notes.map((note) => h("p", { class: "note" }, note)));
    put(place.facts, facts(state, result));
    put(table, rows(state, result, change));
    put(place.terms, arithmetic(state, result));
    put(place.epochs, epochs(state, result));
    settings();
    if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus();
  };
  const change = (apply) => { apply(); replace(toQuery(state, query)); draw(); };
  put(root,
    h("header", { class: "title" }, h("p", { class: "eyebrow" }, query.get("from") === "run" ? "What if · a group of your run" : "Learn · how a group teaches"),
      titled(state.question), h("p", {}, "Reference answer ", h("b", {}, excerpt(state.reference, 200)),
        ". Change a reward or a setting, and see who gains.")),
    h("div", { class: "split" },
      h("div", { class: "main" }, place.lead, place.facts,
        h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "the group" }, h("table", { class: "group" },
          h("thead", {}, h("tr", {}, ["#", "completion", "reward", "advantage Â", "weight", "policy before → after"].map((name) =>
            h("th", { scope: "col" }, name)))), table)),
        place.terms, place.epochs),
      h("aside", {}, place.controls)));
  draw();
}

// A completion, token by token: one figure as colour, all figures of the token in hand as text.

import { lines } from "./chart.js";
import { floats } from "./data.js";
import { excerpt, h, longText, number, put, shown, signed } from "./dom.js";
import { crumbs, notices, outcome, placeName } from "./pieces.js";

const MOST_TOKENS = 4000;
const MOST_OF_A_TOKEN = 400;
const BOUNDS = ["none", "low", "high", "masked"];

/** What can be shown as colour: label, whether it has a sign, what it is compared with. */
const FIGURES = {
  advantage: { label: "advantage", signed: true }, sampling_logprobs: { label: "log-probability (sampler)" },
  entropy: { label: "entropy, nats" }, ratio: { label: "ratio ρ", signed: true, middle: 1 },
  mismatch: { label: "mismatch, trainer − sampler", signed: true }, kl: { label: "KL to the reference", signed: true },
  change: { label: "change by the update", signed: true }, importance: { label: "importance weight", signed: true, middle: 1 },
  trainer_logprobs: { label: "log-probability (trainer)" }, ref_logprobs: { label: "log-probability (reference)" },
  after_logprobs: { label: "log-probability after the update" }, values: { label: "critic’s value" }, returns: { label: "return" },
};

function scaleOf(values, middle) {
  let largest = 0;
  for (const value of values) if (Number.isFinite(value)) largest = Math.max(largest, Math.abs(value - middle));
  return largest || 1;
}

function ranks(values, middle) {
  const sorted = Array.from(values, (value) => Math.abs(value - middle)).filter(Number.isFinite).sort((a, b) => a - b);
  return (value) => {
    let low = 0;
    let high = sorted.length;
    while (low < high) { const at = (low + high) >> 1; if (sorted[at] < value) low = at + 1; else high = at; }
    return low / Math.max(sorted.length - 1, 1);
  };
}

/** Class and strength of each token's colour. */
export function tones(values, { signed: hasSign, middle = 0 }, scale) {
  const share = scale === "quantile" ? ranks(values, middle) : ((largest) => (value) => value / largest)(scaleOf(values, middle));
  return Array.from(values, (value) => {
    if (!Number.isFinite(value)) return ["", 0];
    const distance = value - middle;
    return [hasSign && distance < 0 ? "minus" : "plus", distance === 0 ? 0 : Math.min(share(Math.abs(distance)), 1)];
  });
}

function readings(value, figures, i) {
  const facts = [["token", `${i} of ${value.num_read}`], ["id", value.ids ? value.ids[i] : "–"]];
  if (value.sampled && !value.sampled[i]) facts.push(["put in", "not sampled, not trained"]);
  for (const [name, values] of Object.entries(figures)) facts.push([FIGURES[name].label, number(values[i], 5)]);
  if (value.bound) facts.push(["bound", BOUNDS[value.bound[i]] ?? "?"]);
  return facts.map(([name, text]) => h("span", {}, `${name} `, h("b", {}, String(text))));
}

function tokenList(value, figures, state, reading) {
  const count = Math.min(value.num_read, MOST_TOKENS);
  const figure = FIGURES[state.by];
  const colour = figure ? tones(figures[state.by], figure, state.scale) : Array(count).fill(["", 0]);
  const elements = [];
  for (let i = 0; i < count; i += 1) {
    const text = value.tokens ? value.tokens[i].slice(0, MOST_OF_A_TOKEN) : String(value.ids[i]);
    const clipped = value.bound && value.bound[i] > 0;
    const classes = ["tok", value.tokens ? "" : "id", colour[i][0], clipped ? "clipped" : "", value.sampled && !value.sampled[i] ? "put" : ""];
    const element = document.createElement("span");
    element.className = classes.filter(Boolean).join(" ");
    element.style.setProperty("--share", colour[i][1]);
    element.dataset.i = i;
    element.tabIndex = i === state.at ? 0 : -1;
    element.textContent = text === "" ? (i === count - 1 && value.finish === "stop" ? "■" : "·") : state.spaces ? shown(text).replace(/ /g, "·").replace(/\n/g, "⏎\n") : shown(text);
    elements.push(element);
  }
  const box = h("div", { class: "tokens", id: "tokens", role: "group", "aria-label": "tokens; arrow keys move", "aria-describedby": "reading" });
  box.append(...elements);
  const read = (i) => { state.at = i; put(reading, readings(value, figures, i)); };
  box.addEventListener("pointerover", (event) => { const i = event.target.dataset?.i; if (i !== undefined) read(Number(i)); });
  box.addEventListener("focusin", (event) => { const i = event.target.dataset?.i; if (i !== undefined) read(Number(i)); });
  box.addEventListener("keydown", (event) => {
    const from = Number(event.target.dataset?.i ?? 0);
    const to = { ArrowRight: from + 1, ArrowLeft: from - 1, ArrowDown: from + 10, ArrowUp: from - 10, Home: 0, End: count - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = elements[Math.min(Math.max(to, 0), count - 1)];
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  return [box, value.num_read > count ? h("p", { class: "hint" }, `${(value.num_read - count).toLocaleString("en")} more tokens are not shown.`) : null];
}

function body(value, context) {
  const figures = Object.fromEntries(Object.entries(value.figures).filter(([, text]) => text !== null).map(([name, text]) => [name, floats(text)]));
  const names = Object.keys(FIGURES).filter((name) => figures[name]);
  const wanted = context.query.get("by");
  const state = { by: names.includes(wanted) ? wanted : names[0], scale: context.query.get("scale") === "quantile" ? "quantile" : "absolute", spaces: context.query.get("spaces") === "1", at: 0 };
  const reading = h("div", { class: "reading-line", id: "reading", "aria-live": "polite" }, h("span", { class: "same" }, "Point at a token, or move with the arrow keys."));
  const list = h("div", {});
  const strip = h("div", {});
  const draw = () => {
    put(list, tokenList(value, figures, state, reading));
    const values = figures[state.by];
    put(strip, values && values.length > 1 ? lines([{ name: FIGURES[state.by].label, x: Array.from(values, (_, i) => i), values: Array.from(values) }], {
      label: `${FIGURES[state.by].label} over the tokens`, xName: "token", height: 140 }) : null);
  };
  const set = (name, text) => { context.query.set(name, text); context.replace(context.query); draw(); };
  const missing = Object.keys(FIGURES).filter((name) => !figures[name]).map((name) => FIGURES[name].label);
  draw();
  return h("section", { class: "card" }, h("h2", {}, "Tokens"),
    h("div", { class: "tools", vars: { margin: "0 0 .6rem" } }, h("label", {}, "Colour", h("select", { id: "by", onchange: (event) => { state.by = event.target.value; set("by", state.by); } },
      names.map((name) => h("option", { value: name, selected: name === state.by }, FIGURES[name].label)))),
    h("label", {}, "Scale", h("select", { id: "scale", onchange: (event) => { state.scale = event.target.value; set("scale", state.scale); } },
      ["absolute", "quantile"].map((name) => h("option", { value: name, selected: name === state.scale }, name)))),
    h("label", {}, "Show spaces", h("input", { id: "spaces", type: "checkbox", checked: state.spaces, onchange: (event) => { state.spaces = event.target.checked; set("spaces", state.spaces ? "1" : "0"); } })),
    h("span", { class: "hint" }, "− ", h("span", { class: "legend" }), " +  dotted: below the middle; wavy: a bound holds")),
    value.tokens ? null : h("p", { class: "hint" }, "Where each token ends in the text was not recorded, so tokens are shown by their ids."),
    list, reading, strip, missing.length ? h("p", { class: "hint" }, `Not recorded: ${missing.join(", ")}.`) : null);
}

/** The turns of an episode: what the model said, what the environment answered, and what each is worth. */
function conversation(turns) {
  const facts = (turn, i) => [`turn ${i + 1}`, `reward ${number(turn.reward)}`, `advantage ${signed(turn.advantage, 4)}`, turn.state && `in ${shown(turn.state)}`, `${number(turn.seconds, 3)} s`, turn.evidence && shown(turn.evidence)];
  return h("section", { class: "card", id: "turns", vars: { margin: "1rem 0" } }, h("h2", {}, "Turns"), turns.map((turn, i) => h("div", { class: "turn" },
    h("p", { class: "hint" }, facts(turn, i).filter(Boolean).join(" · ")), h("pre", { class: "said" }, shown(turn.said)), turn.reply ? h("pre", { class: "reply" }, shown(turn.reply)) : null)));
}

export async function completion(root, [run, place, problem, sample], context) {
  const { value } = await context.facts(`runs/${run}/places/${place}/groups/${problem}/samples/${sample}`);
  if (!context.isCurrent()) return;
  const base = `#/run/${run}/at/${place}`;
  const near = (by) => { const at = value.samples.indexOf(Number(sample)) + by; return value.samples[at]; };
  const link = (by, name) => (near(by) === undefined ? null : h("a", { href: `${base}/${problem}/${near(by)}`, id: by < 0 ? "before" : "after" }, name));
  const isTraining = value.place.step !== null;
  const facts = [isTraining && ["advantage", signed(value.advantage, 4)], ["reward", number(value.reward)], ["tokens", number(value.length)],
    isTraining && ["weight in the loss", number(value.loss_weight)], ["policy version", number(value.policy_version)]].filter(Boolean);
  put(root, crumbs([["Runs", "#/"], [value.run, `#/run/${run}`], [placeName(value.place), base], [value.problem, `${base}/${problem}`], [`completion ${sample}`, null]]),
    h("header", { class: "title" }, h("p", { class: "eyebrow" }, "Completion"), h("h1", {}, `Completion ${sample} `, outcome(value.outcome)),
      h("p", {}, link(-1, "← previous"), " ", link(1, "next →"))),
    h("dl", { class: "facts", vars: { margin: "1rem 0" } }, facts.map(([name, text]) => h("div", {}, h("dt", {}, name), h("dd", { "data-fact": name }, text)))),
    notices(value.notices), value.turns?.length ? conversation(value.turns) : null, value.num_read ? body(value, context) : null,
    h("div", { class: "pair", vars: { "margin-top": "1rem" } },
      h("section", { class: "card" }, h("h2", {}, "The verdict"), h("p", {}, `Answer ${shown(value.answer ?? "none")}, reference ${excerpt(value.reference, 400)}`),
        longText(value.evidence || "The verifier gave no reason."), h("p", { class: "hint" }, Object.entries(value.parts).map(([name, part]) => `${shown(name)} ${number(part)}`).join(" · "))),
      h("section", { class: "card" }, h("h2", {}, "The text"), longText(value.text))),
    value.replay ? h("section", { class: "card", vars: { "margin-top": "1rem" } }, h("h2", {}, "Make it again"), h("pre", { class: "command", tabindex: 0 }, shown(value.replay)),
      h("button", { onclick: (event) => navigator.clipboard?.writeText(value.replay).then(() => { event.target.textContent = "Copied"; }) }, "Copy")) : null);
}

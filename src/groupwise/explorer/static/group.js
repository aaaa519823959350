// A group: its prompt, its reference answer, and its completions side by side.

import { excerpt, h, number, put, shown, longText, signed, titled } from "./dom.js";
import { whatIf } from "./learn.js";
import { crumbs, notices, outcome, placeName } from "./pieces.js";

/** How many characters all texts begin with. */
export function sharedPrefix(texts) {
  if (texts.length < 2) return 0;
  let length = 0;
  while (length < texts[0].length && texts.every((text) => text[length] === texts[0][length])) length += 1;
  return length;
}

function toLearn(value) {
  whatIf({
    question: value.question, reference: value.reference, settings: value.settings,
    completions: value.completions.slice(0, 64).map((one) => ({
      text: one.text.slice(0, 400), reward: typeof one.reward === "number" ? one.reward : null, format: 0, length: Math.max(one.length ?? 1, 1), truncated: one.finish === "length",
    })),
  });
  location.hash = "/learn?from=run";
}

const partsOf = (parts) => Object.entries(parts).map(([name, value]) => `${name} ${number(value)}`).join(" · ");

function card(one, prefix, href) {
  const text = longText(one.text.slice(prefix));
  if (prefix) text.prepend(h("span", { class: "same", title: "the same in all completions" }, shown(one.text.slice(0, prefix))));
  return h("section", { class: "card completion" },
    h("h2", {}, h("a", { href }, `Completion ${one.sample}`), outcome(one.outcome), one.advantage === null ? null : h("span", {}, `Â ${signed(one.advantage)}`)),
    h("p", { class: "hint" }, [`reward ${number(one.reward)}`, partsOf(one.parts), one.answer === null ? null : `answer ${one.answer}`,
      `${number(one.length)} tokens`, one.finish === "length" ? "ran into the limit" : null].filter(Boolean).map(shown).join(" · ")),
    one.evidence ? h("details", {}, h("summary", {}, "Why the verifier said so"), longText(one.evidence)) : null, text,
    one.cut ? h("p", { class: "hint" }, `${one.cut.toLocaleString("en")} more characters: open the completion.`) : null);
}

export async function group(root, [run, place, problem], context) {
  const { value } = await context.facts(`runs/${run}/places/${place}/groups/${problem}`);
  if (!context.isCurrent()) return;
  const base = `#/run/${run}/at/${place}`;
  const prefix = sharedPrefix(value.completions.map((one) => one.text));
  put(root, crumbs([["Runs", "#/"], [value.run, `#/run/${run}`], [placeName(value.place), base], [value.problem, null]]),
    h("header", { class: "title" }, h("p", { class: "eyebrow" }, "Group"), titled(value.question),
      h("p", {}, "Reference answer ", h("b", { dir: "auto" }, excerpt(value.reference, 400)))),
    h("div", { class: "tools" }, h("button", { class: "primary", id: "what-if", onclick: () => toLearn(value) }, "What if? Change its rewards"),
      h("a", { href: `#/compare?a=${run}.${place}&b=${run}.${place}&problem=${problem}` }, "Compare this problem")),
    notices(value.notices),
    h("details", { class: "card" }, h("summary", {}, "The prompt, as the model read it"), promptText(value)),
    h("div", { class: "pair", vars: { "margin-top": "1rem" } }, value.completions.map((one) => card(one, prefix, `${base}/${problem}/${one.sample}`))));
}

function promptText(value) {
  if (!value.prompt_tokens) return longText(value.prompt);
  return h("div", { class: "text" }, value.prompt_tokens.slice(0, 4000).map((token, i) =>
    h("span", { class: `tok ${i % 2 ? "even" : ""}`, title: `token ${value.prompt_ids[i]}`, vars: { "--tone": "var(--flat)", "--share": i % 2 ? 0.25 : 0.1 } }, shown(token))));
}

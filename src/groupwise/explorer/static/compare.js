// Two places side by side: which problems were gained and lost, and how one completion differs from another.

import { Trouble } from "./data.js";
import { excerpt, h, percent, put, shown } from "./dom.js";
import { crumbs, notices, outcome, placeName } from "./pieces.js";

const MOST_WORDS = 1500;
const MOST_ROWS = 300;
const wordsOf = (text) => text.match(/\s+|[^\s]+/g) ?? [];

/** Words of two texts as [kind, word]: "same", "del" (only in the first) or "ins"; the longest common subsequence. */
export function wordDiff(before, after) {
  const [a, b] = [before, after].map((text) => wordsOf(text).slice(0, MOST_WORDS));
  const width = b.length + 1;
  const table = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      table[i * width + j] = a[i] === b[j] ? table[(i + 1) * width + j + 1] + 1 : Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
    }
  }
  const found = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { found.push(["same", a[i]]); i += 1; j += 1; }
    else if (j >= b.length || (i < a.length && table[(i + 1) * width + j] >= table[i * width + j + 1])) { found.push(["del", a[i]]); i += 1; }
    else { found.push(["ins", b[j]]); j += 1; }
  }
  return found;
}

/** True where the differences of two completions do not reach to their ends. */
export const isCut = (...completions) => completions.some((one) => one.cut > 0 || wordsOf(one.text).length > MOST_WORDS);

const share = (group) => (group.num_judged ? group.num_correct / group.num_judged : null);

/** True where two places call different questions by one name, such as the number of a row of two files. */
const isOther = (group, other) => Boolean(group.question && other.question && group.question !== other.question);

/** Problems that both places name and that are not the same. */
export function strangers(first, second) {
  const after = new Map(second.groups.map((group) => [group.id, group]));
  return first.groups.filter((group) => after.has(group.id) && isOther(group, after.get(group.id)));
}

/** Problems of both places with their pass rates, the largest change first. */
export function changes(first, second) {
  const after = new Map(second.groups.map((group) => [group.id, group]));
  return first.groups.flatMap((group) => {
    const other = after.get(group.id);
    if (!other || isOther(group, other) || share(group) === null || share(other) === null) return [];
    return [{ id: group.id, problem: group.problem, before: share(group), after: share(other), change: share(other) - share(group) }];
  }).sort((a, b) => Math.abs(b.change) - Math.abs(a.change));
}

async function choices(context) {
  const { value: runs } = await context.facts("runs");
  const all = await Promise.all(runs.map(async (run) => (await context.facts(`runs/${run.index}`)).value));
  return all.flatMap((run) => run.places.map((place) => ({ key: `${run.index}.${place.id}`, run: run.index, name: `${run.name}: ${placeName(place)}`, isDev: /^dev-step-/.test(place.name) })));
}

/** What is compared where nobody has chosen: the first and the last dev evaluation of one run, which ask the same problems. */
export function first(places) {
  const dev = places.filter((place) => place.isDev);
  const of = (run) => dev.filter((place) => place.run === run);
  const own = dev.map((place) => of(place.run)).find((list) => list.length > 1) ?? places;
  return [own[0], own.at(-1)];
}

const read = (context, key, more = "") => {
  const [run, place] = key.split(".");
  return context.facts(`runs/${run}/places/${place}${more}`).then((answer) => answer.value);
};

function table(rows, pick) {
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "problems" }, h("table", {}, h("thead", {}, h("tr", {}, ["problem", "A", "B", ""].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, rows.slice(0, MOST_ROWS).map((row) => h("tr", {}, h("th", { scope: "row" }, h("button", { class: "quiet", "data-problem": row.id, onclick: () => pick(row.id) }, shown(row.problem))),
      h("td", { class: "figure" }, percent(row.before, 0)), h("td", { class: "figure" }, percent(row.after, 0)),
      h("td", {}, row.change > 0 ? h("span", { class: "tag correct" }, "+ gained") : row.change < 0 ? h("span", { class: "tag wrong" }, "− lost") : "same"))))),
  rows.length > MOST_ROWS ? h("p", { class: "hint" }, `${rows.length - MOST_ROWS} more problems, whose pass rates changed no more than these.`) : null);
}

function texts(a, b, state, redraw) {
  const select = (side, group) => h("select", { id: `sample-${side}`, "aria-label": `completion of ${side}`, onchange: (event) => { state[side] = Number(event.target.value); redraw(); } },
    group.completions.map((one, i) => h("option", { value: i, selected: i === state[side] }, `completion ${one.sample}`)));
  const [one, two] = [a.completions[state.A] ?? a.completions[0], b.completions[state.B] ?? b.completions[0]];
  const words = wordDiff(one.text, two.text);
  const side = (kind) => h("div", { class: "text", dir: "auto" }, words.filter(([what]) => what === "same" || what === kind).map(([what, word]) => (what === "same" ? shown(word) : h(what, {}, shown(word)))));
  return h("section", { vars: { "margin-top": "1rem" } }, h("h2", { dir: "auto" }, excerpt(a.question, 300)),
    isCut(one, two) ? h("p", { class: "hint" }, "Long completions are compared, and shown, from their beginning alone; the page of a completion has all of it.") : null, h("div", { class: "pair" },
    h("section", { class: "card completion" }, h("h2", {}, "A ", select("A", a), outcome(one.outcome)), side("del")),
    h("section", { class: "card completion" }, h("h2", {}, "B ", select("B", b), outcome(two.outcome)), side("ins"))));
}

export async function compare(root, _, context) {
  const places = await choices(context);
  if (!context.isCurrent()) return;
  const { query } = context;
  const known = (name, fallback) => (places.some((place) => place.key === query.get(name)) ? query.get(name) : fallback?.key);
  const state = { a: known("a", first(places)[0]), b: known("b", first(places)[1]), A: 0, B: 0, problem: query.get("problem") };
  const result = h("div", {});
  const body = h("div", {});
  const told = (work) => async (...given) => {
    try { await work(...given); } catch (error) {
      if (!(error instanceof Trouble)) throw error;
      put(body, notices([error.message]));
    }
  };
  const pick = told(async (problem) => {
    state.problem = problem;
    query.set("problem", problem);
    context.replace(query);
    const [a, b] = await Promise.all([read(context, state.a, `/groups/${problem}`), read(context, state.b, `/groups/${problem}`)]);
    const draw = () => put(body, texts(a, b, state, draw));
    draw();
  });
  const load = told(async () => {
    put(body);
    const [a, b] = await Promise.all([read(context, state.a), read(context, state.b)]);
    const rows = changes(a, b);
    const others = strangers(a, b).length;
    const [gained, lost] = [rows.filter((row) => row.change > 0).length, rows.filter((row) => row.change < 0).length];
    put(result, notices([...a.notices, ...b.notices, ...(others ? [`${others} of the problems have one name in both places and are different questions: they are left out.`] : [])]), h("p", { class: "lead", id: "verdict" }, rows.length ? `${rows.length} ${rows.length === 1 ? "problem" : "problems"} in both: ${gained} gained, ${lost} lost, ${rows.length - gained - lost} the same.`
      : "No problem is in both. Two evaluations ask the same problems; training steps ask others each time."), rows.length ? table(rows, pick) : null);
    if (state.problem && rows.some((row) => row.id === state.problem)) await pick(state.problem);
  });
  const select = (name, label) => h("label", {}, label, h("select", { id: `place-${name}`, onchange: (event) => { state[name] = event.target.value; query.set(name, event.target.value); context.replace(query); load(); } },
    places.map((place) => h("option", { value: place.key, selected: place.key === state[name] }, shown(place.name)))));
  put(root, crumbs([["Runs", "#/"], ["Compare", null]]), h("header", { class: "title" }, h("p", { class: "eyebrow" }, "Compare"), h("h1", {}, "What was gained, what was lost")),
    places.length ? [h("div", { class: "tools" }, select("a", "A, before"), select("b", "B, after")), result, body] : h("p", {}, "There are no completions to compare."));
  if (places.length) await load();
}

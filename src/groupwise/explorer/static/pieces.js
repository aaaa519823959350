// Small pieces that several pages share.

import { h, shown } from "./dom.js";

/** The way back: [name, address or null]. */
export const crumbs = (entries) => h("nav", { class: "crumbs", "aria-label": "where you are" }, entries.map(([name, href], i) => [
  i ? h("span", { "aria-hidden": "true" }, "›") : null, href ? h("a", { href }, shown(name)) : h("span", {}, shown(name))]));

/** What could not be read, named. */
export const notices = (texts) => texts.map((text) => h("p", { class: "notice", role: "status" }, shown(text)));

const MARKS = { correct: "✓", wrong: "✗", unparsable: "✗", timeout: "!", crashed: "!", none: "?" };
export const outcome = (name) => h("span", { class: `tag ${MARKS[name] ? name : ""}` }, `${MARKS[name] ?? "?"} ${name}`);

export const placeName = (place) => (place.step === null ? place.name : `step ${place.step}`);

/** Steps done of those that the recipe asks for; a run that finished before had another end: its tokens, its time. */
export const progress = (run) => `${run.done} of ${run.finished && run.done < (run.num_steps ?? 0) ? "at most " : ""}${run.num_steps ?? "?"}`;

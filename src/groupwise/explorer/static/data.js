// Where the pages' facts come from: the server that `groupwise explore` started, or the page itself when exported.

const TOKEN_KEY = "groupwise-token";

/** Take the token out of the address, in which the command printed it, and keep it for this tab. */
export function takeToken() {
  const match = /^#token=([\w-]+)(\/.*)?$/.exec(location.hash);
  if (!match) return;
  sessionStorage.setItem(TOKEN_KEY, match[1]);
  history.replaceState(null, "", `#${match[2] ?? "/"}`);
}

/** True in an exported page. */
export const exported = () => document.getElementById("facts-index") !== null;

const cache = new Map();
const MOST_KEPT = 24;

/** A failure that the page can tell the reader. */
export class Trouble extends Error {}

function inline(path) {
  const index = JSON.parse(document.getElementById("facts-index").textContent);
  const id = index.parts[path];
  if (id === undefined) throw new Trouble("This page was exported without it; `groupwise explore` on the run shows it.");
  const value = JSON.parse(document.getElementById(id).textContent);
  if (value.error && !path.startsWith("results/")) throw new Trouble(value.error);
  return value;
}

/** The facts at a path such as `runs/0`; asked again only for what has changed. `fresh` tells a poll from a click. */
export async function facts(path) {
  if (exported()) return { value: inline(path), changed: true };
  const known = cache.get(path);
  const headers = { "X-Groupwise-Token": sessionStorage.getItem(TOKEN_KEY) ?? "" };
  if (known) headers["If-None-Match"] = known.etag;
  let answer;
  try {
    answer = await fetch(`api/${path}`, { headers, cache: "no-store" });
  } catch {
    throw new Trouble("The explorer's server does not answer. Is `groupwise explore` still running?");
  }
  if (answer.status === 304) return { value: known.value, changed: false };
  const value = await answer.json();
  if (!answer.ok) throw new Trouble(value.error ?? `The server answered ${answer.status}.`);
  cache.delete(path);
  cache.set(path, { etag: answer.headers.get("ETag"), value });
  if (cache.size > MOST_KEPT) cache.delete(cache.keys().next().value);
  return { value, changed: true };
}

/** Numbers of tokens, which travel as base64 of 32-bit floats so that each arrives as it was recorded. */
export function floats(text) {
  if (text === null || text === undefined) return null;
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  return new Float32Array(bytes.buffer);
}

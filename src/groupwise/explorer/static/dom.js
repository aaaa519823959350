// Elements are made here and nowhere else, and text becomes a text node: nothing that a model wrote is ever parsed.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "vars") for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** An element with attributes (`onclick`: a listener, `vars`: custom properties) and children. */
export const h = (name, attributes = {}, ...children) => filled(document.createElement(name), attributes, children);
/** The same for SVG. */
export const s = (name, attributes = {}, ...children) =>
  filled(document.createElementNS(SVG, name), attributes, children);

const CONTROLS = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

function glyph(character) {
  const code = character.codePointAt(0);
  return code < 32 ? String.fromCodePoint(0x2400 + code) : `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
}

/** Text whose control and direction characters are seen instead of obeyed. */
export const shown = (text) => String(text).replace(CONTROLS, glyph);

/** A number's text with a real minus sign, and none before 0. */
export const minus = (text) => text.replace(/^-(?=0(\.0*)?$)/, "").replace("-", "−");

/** A number for people: four digits, a real minus sign, a dash where there is none. */
export function number(value, digits = 4) {
  if (typeof value === "string") return value; // NaN or an infinity, which JSON has no number for
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (Number.isInteger(value)) return String(value).replace("-", "−");
  const small = Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6;
  const text = small ? value.toExponential(digits - 2) : String(Number(value.toPrecision(digits)));
  return text.replace(/-/g, "−");
}

/** The same with the sign that an advantage needs. */
export const signed = (value, digits = 2) => {
  if (typeof value === "string") return value;
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const text = Math.abs(value).toFixed(digits);
  return `${value < 0 && Number(text) !== 0 ? "−" : "+"}${text}`;
};

export const percent = (share, digits = 1) =>
  (typeof share === "string" ? share : share === null || share === undefined ? "–" : `${minus((100 * share).toFixed(digits))} %`);

/** The beginning of a text, which says by its end that there is more. */
export const excerpt = (text, most) => shown(text.length > most ? `${text.slice(0, most)}…` : text);

/** A question as a title; a long one is no shout. */
export const titled = (text) => h("h1", { dir: "auto", class: text.length > 90 ? "long" : null }, excerpt(text, 400));

const MOST_SHOWN = 20000;

/** A long text, of which the first part is shown until more is asked for. */
export function longText(text, attributes = {}) {
  const element = h("div", { class: "text", dir: "auto", ...attributes }, shown(text.slice(0, MOST_SHOWN)));
  if (text.length > MOST_SHOWN) {
    let end = MOST_SHOWN;
    const more = h("button", {
      class: "quiet", onclick: () => {
        more.before(shown(text.slice(end, end + MOST_SHOWN)));
        end += MOST_SHOWN;
        if (end >= text.length) more.remove();
        else more.textContent = `Show more (${(text.length - end).toLocaleString("en")} characters left)`;
      },
    }, `Show more (${(text.length - end).toLocaleString("en")} characters left)`);
    element.append(more);
  }
  return element;
}

/** Replace what an element holds. */
export function put(element, ...children) { element.replaceChildren(...children.flat(3).filter(Boolean)); }

// How text of objects is shown. It is other people's: it may be long, or mislead.

// Characters that change the order or look of others, or that are not seen: C0 and C1 controls, zero-width and bidi
// controls, line separators, tags. Each is shown as its number.
export const unseen = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

export const number = (c) => `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;

export const longest = 2000;

// visible returns text that shows what it has. What is longer than limit is cut.
export function visible(value, limit = longest) {
  const text = value === null || value === undefined ? "" : String(value);
  const rest = text.length - limit;
  const shown = (rest > 0 ? text.slice(0, limit) : text).replace(unseen, number);
  return rest > 0 ? `${shown}… (${rest.toLocaleString("en")} more characters)` : shown;
}

// age is how long ago a time was, as kubectl prints it.
export function age(time, now = Date.now()) {
  if (!time) return "";
  const s = Math.max(0, Math.floor((now - new Date(time)) / 1000));
  if (Number.isNaN(s)) return "";
  const m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
  if (s < 120) return `${s}s`;
  if (m < 10) return s % 60 ? `${m}m${s % 60}s` : `${m}m`;
  if (m < 180) return `${m}m`;
  if (h < 8) return m % 60 ? `${h}h${m % 60}m` : `${h}h`;
  if (h < 48) return `${h}h`;
  if (d < 8) return h % 24 ? `${d}d${h % 24}h` : `${d}d`;
  if (d < 730) return `${d}d`;
  return `${Math.floor(d / 365)}y`;
}

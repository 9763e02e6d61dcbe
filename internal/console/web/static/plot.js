// A plot of some series over time, drawn as SVG. What it shows is text, too: its label has the last values.
import { html } from "./html.js";

const width = 300, height = 80;

// Plot shows series: a list of {name, values, unit}, whose values are numbers or null, one for each sample.
export function Plot({ title, series, format = (v) => round(v), samples }) {
  const most = Math.max(...series.flatMap((s) => s.values.filter((v) => v !== null)), 0);
  const top = most || 1;
  const last = series.map((s) => `${s.name} ${s.values.length && s.values.at(-1) !== null ? format(s.values.at(-1)) : "–"}`);
  return html`<figure class="plot"><figcaption>${title} <span class="faint">up to ${format(most)}</span></figcaption>
    <svg viewBox=${`0 0 ${width} ${height}`} preserveAspectRatio="none" role="img" aria-label=${`${title}: ${last.join(", ")}`}>
      ${series.map((s, i) => html`<path class=${`s${i}`} d=${path(s.values, top, samples)} />`)}</svg>
    <ul>${series.map((s, i) => html`<li><i class=${`swatch s${i}`} aria-hidden="true"></i> ${last[i]}</li>`)}</ul></figure>`;
}

// path is the line of some values, newest at the right. A gap is where there is none.
function path(values, top, samples) {
  let d = "", pen = "M";
  values.forEach((v, i) => {
    if (v === null) pen = "M";
    else {
      const x = width - ((values.length - 1 - i) * width) / (samples - 1);
      d += `${pen}${x.toFixed(1)} ${(height - 1 - (v / top) * (height - 4)).toFixed(1)}`;
      pen = "L";
    }
  });
  return d;
}

export function round(v) {
  return v >= 100 || Number.isInteger(v) ? Math.round(v).toLocaleString("en") : v.toPrecision(2);
}

export function bytes(v) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const i = v > 0 ? Math.min(units.length - 1, Math.floor(Math.log2(v) / 10)) : 0;
  return `${round(v / 2 ** (10 * i))} ${units[i]}`;
}

// A text field for YAML: CodeMirror, with completion by a schema. It is in a shadow tree, since only there it makes its
// styles without a style element, which the page's Content-Security-Policy refuses.
import { html, useEffect, useRef } from "./html.js";
import { parseLine, pathOf, typeName, unknown } from "./schema.js";
import { number, unseen, visible } from "./text.js";
import { acceptCompletion, autocompletion, completionKeymap } from "./vendor/cm-autocomplete.js";
import { defaultKeymap, history, historyKeymap } from "./vendor/cm-commands.js";
import { HighlightStyle, indentOnInput, syntaxHighlighting, syntaxTree } from "./vendor/cm-language.js";
import { lintKeymap, linter } from "./vendor/cm-lint.js";
import { Compartment, EditorState } from "./vendor/cm-state.js";
import { drawSelection, EditorView, highlightSpecialChars, keymap, lineNumbers } from "./vendor/cm-view.js";
import { yaml } from "./vendor/cm-yaml.js";
import { tags } from "./vendor/lezer-highlight.js";

const look = EditorView.theme({
  "&": { backgroundColor: "var(--back)", color: "var(--text)", border: "1px solid var(--line)", borderRadius: "4px", fontSize: "13px" },
  "&.cm-focused": { outline: "2px solid var(--link)" },
  ".cm-scroller": { fontFamily: 'ui-monospace, "DejaVu Sans Mono", monospace', minHeight: "14rem", maxHeight: "65vh" },
  ".cm-gutters": { backgroundColor: "var(--raised)", color: "var(--faint)", border: "0" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "var(--chosen)" },
  ".cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--text)", border: "1px solid var(--line)" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--chosen)", color: "var(--text)" },
  ".cm-completionInfo": { maxWidth: "30rem", whiteSpace: "pre-wrap" },
});

const colours = syntaxHighlighting(HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--link)" },
  { tag: tags.comment, color: "var(--faint)" },
]));

// hidden shows the characters that one would not see, or that change the order of others.
const hidden = highlightSpecialChars({
  specialChars: unseen,
  render: (code) => {
    const shown = document.createElement("span");
    shown.textContent = number(String.fromCodePoint(code));
    shown.className = "cm-specialChar";
    return shown;
  },
});

// scalar is a value as YAML: quoted, unless it can be nothing but this text. In YAML 1.1, On is a boolean.
function scalar(value) {
  if (typeof value !== "string") return JSON.stringify(value);
  const plain = /^[A-Za-z_][\w./-]*$/.test(value) && !/^(true|false|yes|no|on|off|null|y|n)$/i.test(value);
  return plain ? value : JSON.stringify(value);
}

// option is a completion. The words of a schema are other people's.
const option = (value, more) => {
  const name = String(value);
  return { label: name, displayLabel: visible(name, 200), apply: scalar(value), ...more };
};

// completions is what may be written at the cursor: keys that are not there yet, or the values of an enumeration.
function completions(schema) {
  return (context) => {
    if (!schema.current) return null;
    const { state } = context;
    const line = state.doc.lineAt(context.pos), n = line.number - 1;
    const lines = state.doc.toString().split("\n");
    const before = line.text.slice(0, context.pos - line.from);
    const { dashes, col, key } = parseLine(`${before}x`);
    if (key !== null) {
      const t = schema.current.at([...pathOf(lines, n, col, dashes), key]);
      const values = t?.enum || (t?.type === "boolean" ? [true, false] : null);
      const from = context.matchBefore(/[^\s:]*$/)?.from ?? context.pos;
      return values && { from, options: values.map((v) => option(v, { type: "enum" })) };
    }
    const word = before.slice(col);
    if (/\s/.test(word) || (!word && !context.explicit)) return null;
    const path = pathOf(lines, n, col, dashes);
    const parent = schema.current.at(path);
    if (!parent?.properties) return null;
    const there = siblings(lines, n, col, path);
    return {
      from: line.from + col, validFor: /^[\w.-]*$/,
      options: Object.entries(parent.properties).filter(([name]) => !there.has(name)).map(([name]) => {
        const t = schema.current.at([...path, name]);
        return option(name, {
          type: "property", detail: typeName(t), info: t?.description ? visible(t.description, 600) : undefined,
          apply: `${scalar(name)}:${t?.type === "object" || t?.type === "array" ? "\n" + " ".repeat(col + (t.type === "object" ? 2 : 0)) + (t.type === "array" ? "- " : "") : " "}`,
          boost: parent.required?.includes(name) ? 1 : 0,
        });
      }),
    };
  };
}

// siblings are the keys beside the one in line n.
function siblings(lines, n, col, path) {
  const found = new Set();
  for (const step of [-1, 1]) {
    for (let i = n + step; i >= 0 && i < lines.length; i += step) {
      const line = parseLine(lines[i]);
      if (line.blank) continue;
      if (line.col < col || (step > 0 && line.dashes.some((d) => d < col))) break;
      if (line.col === col && line.key !== null) found.add(line.key);
      if (step < 0 && path.at(-1) === "*" && line.dashes.some((d) => d < col)) break;
    }
  }
  return found;
}

// problems are errors of the syntax, keys that the schema does not have, and what the server has said.
function problems(schema, told) {
  return (view) => {
    const { doc } = view.state;
    const found = [];
    syntaxTree(view.state).iterate({
      enter: (node) => {
        if (!node.type.isError || found.length > 20) return;
        const line = doc.lineAt(node.from);
        found.push({ from: line.from, to: line.to, severity: "error", message: "This is no YAML." });
      },
    });
    if (schema.current && doc.lines < 5000) {
      for (const u of unknown(schema.current, doc.toString().split("\n"))) {
        const line = doc.line(u.line + 1);
        found.push({ from: line.from + u.from, to: line.from + Math.max(u.to, u.from + 1), severity: "warning", message: `The schema has no field ${visible(u.key, 100)}.` });
      }
    }
    for (const { line, message } of told.current || []) {
      if (line < doc.lines) found.push({ from: doc.line(line + 1).from, to: doc.line(line + 1).to, severity: "error", message: visible(message, 500) });
    }
    return found;
  };
}

// Editor shows a text that may be changed. text is the one that it begins with: another one replaces what is there.
export function Editor({ text, schema, told, label, onChange, onPreview }) {
  const host = useRef(), view = useRef();
  const now = useRef({});
  now.current = { onChange, onPreview };
  const schemaNow = useRef(), toldNow = useRef();
  useEffect(() => {
    const root = host.current.shadowRoot || host.current.attachShadow({ mode: "open" });
    const lint = new Compartment();
    view.current = new EditorView({
      root, parent: root,
      state: EditorState.create({
        doc: text,
        extensions: [
          lineNumbers(), hidden, history(), drawSelection(), indentOnInput(), yaml(), look, colours,
          autocompletion({ override: [completions(schemaNow)], icons: false }),
          lint.of(linter(problems(schemaNow, toldNow), { delay: 400 })),
          keymap.of([
            { key: "Mod-Enter", run: () => (now.current.onPreview(), true) },
            { key: "Tab", run: acceptCompletion },
            ...completionKeymap, ...lintKeymap, ...historyKeymap, ...defaultKeymap,
          ]),
          EditorView.contentAttributes.of({ "aria-label": label, spellcheck: "false", tabindex: "0" }),
          EditorView.updateListener.of((u) => u.docChanged && now.current.onChange(u.state.doc.toString())),
        ],
      }),
    });
    view.current.lintAgain = () => view.current.dispatch({
      effects: lint.reconfigure(linter(problems(schemaNow, toldNow), { delay: 0 })),
    });
    view.current.focus();
    return () => view.current.destroy();
  }, []);
  useEffect(() => {
    if (view.current.state.doc.toString() !== text) {
      view.current.dispatch({ changes: { from: 0, to: view.current.state.doc.length, insert: text } });
    }
  }, [text]);
  useEffect(() => {
    [schemaNow.current, toldNow.current] = [schema, told];
    view.current.lintAgain();
  }, [schema, told]);
  return html`<div class="editor" data-typing ref=${host}></div>`;
}

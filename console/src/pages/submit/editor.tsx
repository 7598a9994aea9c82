/** A YAML editor with completion and help from the schema, and marks on invalid lines. */

import { yaml, yamlLanguage } from "@codemirror/lang-yaml";
import { basicSetup, EditorView } from "codemirror";
import { useEffect, useRef } from "preact/hooks";
import { fieldsAt, type SchemaNode, valuesAt } from "./schema";
import { placeAt } from "./yaml-place";

const MARK = "submit-invalid";

/** What the page does with the editor. */
export interface EditorHandle {
  text: () => string;
  replace: (text: string) => void;
  goTo: (line: number) => void;
}

const THEME = EditorView.theme({
  "&": { height: "100%", backgroundColor: "var(--surface)", color: "var(--text)", fontSize: "13px" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "-2px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.5" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-line span": { color: "var(--accent) !important" },
  [`.cm-line::highlight(${MARK}), .cm-line span::highlight(${MARK})`]: {
    backgroundColor: "color-mix(in srgb, var(--bad) 22%, transparent)",
    textDecoration: "wavy underline var(--bad)",
  },
  ".cm-gutters": { backgroundColor: "var(--surface)", color: "var(--quiet)", borderRight: "1px solid var(--line)" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--raised) !important" },
  ".cm-cursor": { borderLeftColor: "var(--text) !important" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground": {
    backgroundColor: "color-mix(in srgb, var(--accent) 25%, transparent) !important",
  },
  ".cm-tooltip": { backgroundColor: "var(--surface)", border: "1px solid var(--strong-line)", color: "var(--text)" },
  ".cm-tooltip-autocomplete li[aria-selected]": {
    backgroundColor: "var(--accent) !important",
    color: "var(--on-accent) !important",
  },
  ".cm-completionInfo": { maxWidth: "24rem", padding: "0.4rem 0.6rem" },
  ".cm-completionDetail": { fontStyle: "normal", opacity: "0.85" },
});

export function YamlEditor(props: {
  label: string;
  initial: string;
  schema: SchemaNode | undefined;
  /** Lines that have an invalid field. */
  invalid: readonly number[];
  onChange: (text: string) => void;
  /** Called with the line of the caret. */
  onLine: (line: number) => void;
  onSubmit: () => void;
  handle: { current: EditorHandle | null };
}) {
  const host = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView>(undefined);
  const newest = useRef(props);
  newest.current = props;
  useEffect(() => {
    const element = host.current;
    if (element === null) return;
    // The policy of the page forbids style elements. In a shadow root the editor uses style sheets that are objects.
    const shadow = element.shadowRoot ?? element.attachShadow({ mode: "open" });
    const editor = new EditorView({
      doc: props.initial,
      parent: shadow,
      root: shadow,
      extensions: [
        EditorView.domEventHandlers({ keydown: (event) => submitOnKeys(event, () => newest.current.onSubmit()) }),
        basicSetup,
        yaml(),
        yamlLanguage.data.of({
          autocomplete: (context: CompletionContext) => complete(newest.current.schema, context),
        }),
        EditorView.contentAttributes.of({ "aria-label": props.label, "aria-multiline": "true" }),
        EditorView.updateListener.of((update) => {
          if (update.docChanged) newest.current.onChange(update.state.doc.toString());
          if (update.docChanged || update.selectionSet) newest.current.onLine(lineOf(editor));
          if (update.docChanged || update.viewportChanged) mark(editor, newest.current.invalid);
        }),
        THEME,
      ],
    });
    view.current = editor;
    editor.scrollDOM.tabIndex = 0; // what scrolls must be reachable with the keyboard
    props.handle.current = {
      text: () => editor.state.doc.toString(),
      replace: (text) => editor.dispatch({ changes: { from: 0, to: editor.state.doc.length, insert: text } }),
      goTo: (number) => {
        const line = editor.state.doc.line(Math.max(1, Math.min(number, editor.state.doc.lines)));
        editor.dispatch({ selection: { anchor: line.to }, scrollIntoView: true });
        editor.focus();
      },
    };
    return () => {
      CSS.highlights?.delete(MARK);
      editor.destroy();
    };
  }, []);
  useEffect(() => {
    if (view.current) mark(view.current, props.invalid);
  }, [props.invalid]);
  return <div ref={host} class="submit-editor" />;
}

/** The part of CodeMirror's completion that is used here. */
interface CompletionContext {
  pos: number;
  explicit: boolean;
  state: { doc: { toString: () => string } };
}

function complete(schema: SchemaNode | undefined, context: CompletionContext) {
  if (schema === undefined) return null;
  const place = placeAt(context.state.doc.toString(), context.pos);
  if (place.typed === "" && !context.explicit && place.field === undefined) return null;
  const from = context.pos - place.typed.length;
  if (place.field !== undefined) {
    const values = valuesAt(schema, [...place.path, place.field]);
    return { from, options: values.map((label) => ({ label, type: "enum" })) };
  }
  const fields = fieldsAt(schema, place.path);
  const options = fields.map((field) => ({
    label: field.name,
    apply: `${field.name}: `,
    detail: field.isRequired ? "required" : field.about,
    info: field.description,
    type: "property",
  }));
  return { from, options, validFor: /^\w*$/ };
}

function submitOnKeys(event: KeyboardEvent, submit: () => void): boolean {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return false;
  submit();
  return true;
}

function lineOf(editor: EditorView): number {
  return editor.state.doc.lineAt(editor.state.selection.main.head).number;
}

/** Mark lines that are in view. */
function mark(editor: EditorView, lines: readonly number[]): void {
  if (CSS.highlights === undefined) return;
  const ranges = lines.flatMap((number) => {
    if (number < 1 || number > editor.state.doc.lines) return [];
    const line = editor.state.doc.line(number);
    if (line.from < editor.viewport.from || line.to > editor.viewport.to || line.length === 0) return [];
    const start = editor.domAtPos(line.from + (line.text.length - line.text.trimStart().length));
    const end = editor.domAtPos(line.to);
    const range = new Range();
    range.setStart(start.node, start.offset);
    range.setEnd(end.node, end.offset);
    return [range];
  });
  CSS.highlights.set(MARK, new Highlight(...ranges));
}

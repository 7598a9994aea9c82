/** Submit a job: a YAML editor with the checks of the server. */

import { useMemo, useRef, useState } from "preact/hooks";
import { PageHeader } from "../../components/page-header";
import { ResourceView } from "../../components/resource-view";
import { useResource } from "../../state/resource";
import { query } from "../../state/router";
import { storeDraft } from "./draft";
import { type EditorHandle, YamlEditor } from "./editor";
import { type Beginning, loadBeginning } from "./prefill";
import { fieldHelp } from "./schema";
import { HelpPanel, VerdictPanel } from "./side-panel";
import "./submit.css";
import { SubmitDialog } from "./submit-action";
import { TEMPLATES } from "./templates";
import { invalidFields, useValidation } from "./validation";
import { fieldOfLine } from "./yaml-place";

const MOST_BYTES = 1_000_000;

export default function SubmitPage() {
  const [from, step] = [query.value.get("from") ?? "", query.value.get("step") ?? ""];
  const beginning = useResource((signal) => loadBeginning(from, step, signal), [from, step]);
  return (
    <ResourceView resource={beginning} label="Loading the schema">
      {(data) => <SubmitForm key={data.text} beginning={data} />}
    </ResourceView>
  );
}

function SubmitForm({ beginning }: { beginning: Beginning }) {
  const editor = useRef<EditorHandle>(null);
  const [text, setText] = useState(beginning.text);
  const [line, setLine] = useState(1);
  const [isOver, setOver] = useState(false);
  const [isSubmitting, setSubmitting] = useState(false);
  const verdict = useValidation(text).value;
  const fields = invalidFields(verdict);
  const invalid = useMemo(() => fields.flatMap((field) => field.line ?? []), [verdict]);
  const path = fieldOfLine(text, line);
  const drop = async (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    const file = event.dataTransfer?.files[0];
    if (file !== undefined && file.size <= MOST_BYTES) editor.current?.replace(await file.text());
  };
  return (
    <>
      <PageHeader title="Submit" subtitle="Write a spec, or drop a file on the editor.">
        <select
          aria-label="Start from a template"
          value=""
          onChange={(event) => {
            const found = TEMPLATES.find((each) => each.name === event.currentTarget.value);
            if (found) editor.current?.replace(found.text);
            event.currentTarget.value = "";
          }}
        >
          <option value="">Start from a template…</option>
          {TEMPLATES.map((each) => (
            <option key={each.name}>{each.name}</option>
          ))}
        </select>
        <button type="button" class="primary" onClick={() => setSubmitting(true)}>
          Submit
        </button>
      </PageHeader>
      <div class="submit-page">
        {/* biome-ignore lint/a11y/noStaticElementInteractions: a file can also be pasted, or opened as a template */}
        <div
          class={isOver ? "submit-drop over" : "submit-drop"}
          onDragOver={(event) => {
            event.preventDefault();
            setOver(true);
          }}
          onDragLeave={() => setOver(false)}
          onDropCapture={(event) => void drop(event)}
        >
          <YamlEditor
            label="Job spec"
            initial={beginning.text}
            schema={beginning.schema}
            invalid={invalid}
            onChange={(next) => {
              setText(next);
              storeDraft(next);
            }}
            onLine={setLine}
            onSubmit={() => setSubmitting(true)}
            handle={editor}
          />
        </div>
        <div class="submit-side" aria-live="polite">
          <VerdictPanel verdict={verdict} goTo={(number) => editor.current?.goTo(number)} />
          {needsCode(text) && (
            <p class="notice">
              This spec uses your own code. <code>regroup submit spec.yaml --working-dir DIR</code> uploads a folder
              with it; this page sends the spec only.
            </p>
          )}
          <HelpPanel path={path} help={path.length === 0 ? undefined : fieldHelp(beginning.schema, path)} />
        </div>
      </div>
      {isSubmitting && (
        <SubmitDialog text={text} name={verdict?.valid?.spec.name ?? "the job"} onClose={() => setSubmitting(false)} />
      )}
    </>
  );
}

/** Return whether a spec names code that must be on the nodes, and no archive of it. */
function needsCode(text: string): boolean {
  return /^\s*(function|working_dir|requirements_file):|\$\{SPEC_DIR\}/m.test(text) && !/^\s*archive:/m.test(text);
}

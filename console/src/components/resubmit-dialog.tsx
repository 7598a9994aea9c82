/** Submit the spec of a job again: with another name, changed fields, and a checkpoint to start from. */

import { useId, useState } from "preact/hooks";
import { change } from "../api/client";
import type { Schema } from "../api/types";
import { navigate } from "../state/router";
import { commandText } from "../text/commands";
import { changedSpec, type FieldChange, newName, readChanges } from "../text/spec-changes";
import { scalarText } from "../text/yaml";
import { ActionDialog } from "./action-dialog";

export function ResubmitDialog(props: {
  job: Schema<"Job">;
  spec: Schema<"JobSpec">;
  /** Step of the checkpoint to start from. */
  step?: number;
  onClose: () => void;
}) {
  const { job, spec, step, onClose } = props;
  const hint = useId();
  const [name, setName] = useState(newName(job.name, step));
  const [text, setText] = useState("");
  const own: FieldChange[] = [{ path: "name", value: name }];
  if (step !== undefined) own.push({ path: "resume_from", value: `${job.id}@${step}` });
  const { changes, problem } = readChanges(text);
  const all = [...own, ...changes];
  const body = changedSpec(spec, all) as Schema<"JobSpec">;
  const settings = all.flatMap((each) => ["--set", `${each.path}=${scalarText(each.value)}`]);
  const submit = (isDryRun: boolean) => {
    if (problem) return Promise.reject(new Error(problem));
    return change("post", "/v1/jobs", { query: { dry_run: isDryRun }, body });
  };
  const action = {
    title: step === undefined ? "Submit the copy" : `Start from step ${step}`,
    requests: [{ method: "post", path: "/v1/jobs", body: problem ? problem : body }],
    commands: [
      `${commandText("regroup", "get", job.id, "--json")} | jq .spec > spec.json`,
      commandText("regroup", "submit", "spec.json", ...settings),
    ],
    run: submit,
    done: (made: Schema<"Job">) => `Submitted ${made.name}`,
  };
  return (
    <ActionDialog
      action={action}
      onClose={onClose}
      onDone={(made) => navigate(`jobs/${made.id}`)}
      effect={(made) => (
        <ul>
          <li>
            A new job <b>{made.name}</b> of the project {made.project} queues. {job.name} stays as it is.
          </li>
          {step !== undefined && (
            <li>
              It starts from the checkpoint of step {step} of {job.name}.
            </li>
          )}
          {changes.map((each) => (
            <li key={each.path}>
              <code>{each.path}</code>: {scalarText(valueAt(spec, each.path) ?? null)} → {scalarText(each.value)}
            </li>
          ))}
        </ul>
      )}
    >
      <label>
        Name
        <input value={name} onInput={(event) => setName(event.currentTarget.value)} />
      </label>
      <label>
        Changed fields
        <textarea
          rows={3}
          aria-describedby={hint}
          value={text}
          spellcheck={false}
          placeholder={"training.global_batch=8\nrecovery.max_failures=3"}
          onInput={(event) => setText(event.currentTarget.value)}
        />
      </label>
      <p id={hint} class="quiet">
        One on each line: the path of the field, =, and its value. The value null removes a field.
      </p>
    </ActionDialog>
  );
}

function valueAt(spec: unknown, path: string): unknown {
  return path.split(".").reduce<unknown>((value, part) => (value as Record<string, unknown> | null)?.[part], spec);
}

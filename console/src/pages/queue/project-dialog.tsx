/** The quota and the budget of a project, with their effect on the queue before they are stored. */

import { useState } from "preact/hooks";
import { change } from "../../api/client";
import type { Schema } from "../../api/types";
import { type Action, ActionDialog } from "../../components/action-dialog";
import { commandText } from "../../text/commands";
import { countText, numberText } from "../../text/numbers";
import { durationText } from "../../text/time";
import { changesOf, type Fields, fieldsOf, settingsOf } from "./settings";

type Project = Schema<"Project">;

interface Preview {
  project: Project;
  /** The queue simulated with the quota; undefined if that is not possible. */
  forecast: Schema<"WhatIf"> | undefined;
}

export function ProjectDialog(props: {
  name: string;
  project: Project | undefined;
  onClose: () => void;
  onDone: () => void;
}) {
  const { name, project } = props;
  const [fields, setFields] = useState<Fields>(fieldsOf(project));
  const set = (field: keyof Fields) => (event: { currentTarget: HTMLInputElement | HTMLSelectElement }) =>
    setFields({ ...fields, [field]: event.currentTarget.value });
  const settings = settingsOf(fields, project);
  const changed = changesOf(fields, fieldsOf(project));
  const action: Action<Preview> = {
    title: `Save ${name}`,
    requests: [{ method: "put", path: "/v1/projects/{name}", values: { name }, body: settings }],
    commands: [commandText("regroup", "projects", "set", name, ...changed)],
    run: (isDryRun) => save(name, settings, isDryRun),
    done: `${name} is saved`,
  };
  return (
    <ActionDialog
      action={action}
      effect={(preview) => <Effect before={project} preview={preview} changed={changed} />}
      onClose={props.onClose}
      onDone={props.onDone}
    >
      <div class="row">
        <label>
          Guarantee (devices)
          <input type="number" min="0" value={fields.guaranteed} onInput={set("guaranteed")} />
        </label>
        <label>
          Limit (devices)
          <input type="number" min="0" placeholder="none" value={fields.limit} onInput={set("limit")} />
        </label>
        <label>
          Weight
          <input type="number" min="0.000001" step="any" value={fields.weight} onInput={set("weight")} />
        </label>
      </div>
      <div class="row">
        <label>
          Budget
          <input type="number" min="0" step="any" placeholder="none" value={fields.budget} onInput={set("budget")} />
        </label>
        <label>
          Unit of the budget
          <select value={fields.budgetUnit} onInput={set("budgetUnit")}>
            <option value="device_hours">device-hours</option>
            <option value="cost">money</option>
          </select>
        </label>
        <label>
          Use counts from
          <input type="date" value={fields.budgetSince} onInput={set("budgetSince")} />
        </label>
      </div>
    </ActionDialog>
  );
}

function Effect(props: { before: Project | undefined; preview: Preview; changed: readonly string[] }) {
  const { project, forecast } = props.preview;
  if (props.changed.length === 0) return <p>No setting is different.</p>;
  const over = project.limit !== null && project.limit !== undefined && project.allocated > project.limit;
  const guarantee = (project.guaranteed ?? 0) - (props.before?.guaranteed ?? 0);
  const budget = project.budget?.device_hours ?? project.budget?.cost;
  return (
    <ul class="queue-effect">
      <li>
        The project uses {countText(project.allocated, "device")}. It is guaranteed {numberText(project.guaranteed)},
        and may use{" "}
        {project.limit === null || project.limit === undefined ? "all that are free" : `at most ${project.limit}`}.
      </li>
      {guarantee > 0 && <li>Jobs of other projects that borrow these devices shrink or queue when it needs them.</li>}
      {over && <li>Running jobs continue above the limit. No job starts until the project uses less.</li>}
      {budget !== undefined && budget !== null && (
        <li>
          {numberText(project.budget_used ?? 0, 3)} of the budget of {numberText(budget)} is used.
          {(project.budget_used ?? 0) >= budget && " Its jobs are suspended until the budget is raised."}
        </li>
      )}
      <li>{forecast ? forecast.summary : "The waits could not be simulated now."}</li>
      {forecast?.jobs
        .filter((job) => !job.is_running && differs(job))
        .slice(0, 5)
        .map((job) => (
          <li key={job.id}>
            {job.name} ({job.project}): starts {startText(job.start_before_s, forecast)} now, and{" "}
            {startText(job.start_after_s, forecast)} then.
          </li>
        ))}
    </ul>
  );
}

function differs(job: Schema<"JobForecast">): boolean {
  if (job.start_before_s === null || job.start_after_s === null) return job.start_before_s !== job.start_after_s;
  return Math.abs(job.start_before_s - job.start_after_s) > 1;
}

function startText(at_s: number | null, forecast: Schema<"WhatIf">): string {
  return at_s === null
    ? `later than ${durationText(forecast.horizon_s)}`
    : `in ${durationText(Math.max(1, at_s - forecast.now_s))}`;
}

async function save(name: string, settings: Schema<"ProjectSettings">, isDryRun: boolean): Promise<Preview> {
  const project = await change("put", "/v1/projects/{name}", {
    path: { name },
    query: { dry_run: isDryRun },
    body: settings,
  });
  if (!isDryRun) return { project, forecast: undefined };
  const quota = { guaranteed: project.guaranteed ?? 0, limit: project.limit ?? null, weight: project.weight ?? 1 };
  const body = { quotas: { [name]: quota } } as Schema<"WhatIfRequest">;
  const forecast = await change("post", "/v1/what-if", { body }).catch(() => undefined);
  return { project, forecast };
}

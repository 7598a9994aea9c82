/** What the curves show: metrics, range, smoothing, scales. All of it is in the address. */

import type { Schema } from "../../../api/types";
import { href, setQuery } from "../../../state/router";
import { metricOf, USUAL_METRICS } from "../../../text/metrics";
import { numberText } from "../../../text/numbers";
import type { Loaded } from ".";
import { tokensPerStep } from "./points";
import { type CurvesView, MAX_METRICS, stepOf } from "./view";

const SMOOTHING: readonly (readonly [string, string])[] = [
  ["", "none"],
  ["0.6", "light"],
  ["0.9", "medium"],
  ["0.97", "strong"],
];

export function Toolbar(props: { job: Schema<"Job">; view: CurvesView; data: Loaded; metrics: readonly string[] }) {
  const { job, view, data, metrics } = props;
  const choices = [...new Set([...USUAL_METRICS, ...data.extra, ...metrics])];
  const toggle = (id: string) => {
    const chosen = metrics.includes(id) ? metrics.filter((each) => each !== id) : [...metrics, id];
    setQuery({ metrics: chosen.slice(0, MAX_METRICS - 1).join(",") });
  };
  return (
    <div class="curves-toolbar">
      <fieldset class="row">
        <legend class="visually-hidden">Metrics</legend>
        {choices.map((id) => (
          <label key={id} class="check">
            <input type="checkbox" checked={metrics.includes(id)} onChange={() => toggle(id)} />
            {metricOf(id).label}
          </label>
        ))}
      </fieldset>
      <div class="row curves-settings">
        <StepField label="From step" name="from" value={view.from} />
        <StepField label="To step" name="to" value={view.to} />
        <Choice label="Smoothing" name="smooth" value={view.smooth ? String(view.smooth) : ""} options={SMOOTHING} />
        <Choice
          label="Axis"
          name="x"
          value={view.axis === "step" ? "" : view.axis}
          options={[
            ["", "step"],
            ["time", "time"],
            ...(tokensPerStep(data.tokens) === undefined ? [] : ([["tokens", "tokens"]] as const)),
          ]}
        />
        <label class="check">
          <input
            type="checkbox"
            checked={view.isLogarithmic}
            onChange={() => setQuery({ scale: view.isLogarithmic ? undefined : "log" })}
          />
          Log scale
        </label>
        {(view.from !== undefined || view.to !== undefined) && (
          <button type="button" onClick={() => setQuery({ from: undefined, to: undefined })}>
            Show all steps
          </button>
        )}
        <a class="button" href={href("compare", { job: job.id })}>
          Compare
        </a>
        <span class="quiet">{resolution(data.curves.steps_per_point)}</span>
      </div>
    </div>
  );
}

function StepField({ label, name, value }: { label: string; name: string; value: number | undefined }) {
  return (
    <label>
      {label}
      <input
        type="number"
        min="1"
        class="curves-step"
        key={value}
        defaultValue={value ?? ""}
        placeholder={name === "from" ? "first" : "newest"}
        onChange={(event) => setQuery({ [name]: stepOf(event.currentTarget.value)?.toString() })}
      />
    </label>
  );
}

function Choice(props: {
  label: string;
  name: string;
  value: string;
  options: readonly (readonly [string, string])[];
}) {
  return (
    <label>
      {props.label}
      <select value={props.value} onChange={(event) => setQuery({ [props.name]: event.currentTarget.value })}>
        {props.options.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

function resolution(steps: number): string {
  return steps === 1 ? "Each point is one step." : `Each point is the mean of ${numberText(steps, 12)} steps.`;
}

/** One chart for each metric, with a common cursor whose values are text. */

import type { Signal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import type { Schema } from "../../../api/types";
import { LineChart } from "../../../components/chart/line-chart";
import { useKeys } from "../../../state/keys";
import { setQuery } from "../../../state/router";
import { metricOf } from "../../../text/metrics";
import { numberText } from "../../../text/numbers";
import { timeText } from "../../../text/time";
import type { Loaded } from ".";
import { type Axis, axisOf, linesOf, marksOf, type PointRow, rowsOf, tokensPerStep } from "./points";
import type { CurvesView } from "./view";

export function Charts(props: {
  job: Schema<"Job">;
  view: CurvesView;
  data: Loaded;
  cursor: Signal<number | undefined>;
}) {
  const { job, view, data, cursor } = props;
  const shown = data.curves.curves.filter((curve) => curve.committed.steps.length + curve.repeated.length > 0);
  const absent = data.curves.curves.filter((curve) => !shown.includes(curve));
  const axis = useMemo(() => axisOf(view.axis, tokensPerStep(data.tokens)), [view.axis, data.tokens]);
  const rows = useMemo(() => rowsOf(shown), [data]);
  const current = rowAt(rows, axis, cursor.value);
  const move = (distance: number) => {
    const index = current === undefined ? rows.length : rows.indexOf(current);
    const next = rows[Math.min(rows.length - 1, Math.max(0, index + distance))];
    if (next !== undefined) cursor.value = axis.place(next.step, next.time_s);
  };
  useKeys([
    { key: "ArrowLeft", label: "Move the cursor to the previous point", run: () => move(-1) },
    { key: "ArrowRight", label: "Move the cursor to the next point", run: () => move(1) },
  ]);
  const zoom = (from: number, to: number) => {
    const inside = rows.filter((row) => {
      const place = axis.place(row.step, row.time_s);
      return place >= from && place <= to;
    });
    const [first, last] = [inside[0], inside.at(-1)];
    if (first === undefined || last === undefined) return;
    const before = rows[rows.indexOf(first) - 1]?.step;
    setQuery({ from: String(before === undefined ? first.step : before + 1), to: String(last.step) });
  };
  return (
    <>
      <p class="curves-readout" role="status">
        {current === undefined ? "The keys ← and → move the cursor." : <Readout row={current} shown={shown} />}
      </p>
      <div class="curves-charts">
        {shown.map((curve, index) => (
          <CurveChart
            key={curve.metric}
            curve={curve}
            axis={axis}
            view={view}
            series={(index % 7) + 1}
            cursor={cursor}
            marks={marksOf(data.generations, job.incidents, curve.committed, axis)}
            onZoom={zoom}
          />
        ))}
      </div>
      <Marks job={job} generations={data.generations} />
      {absent.length > 0 && (
        <p class="quiet">No values in these steps: {absent.map((curve) => metricOf(curve.metric).label).join(", ")}.</p>
      )}
    </>
  );
}

function CurveChart(props: {
  curve: Schema<"Curve">;
  axis: Axis;
  view: CurvesView;
  series: number;
  cursor: Signal<number | undefined>;
  marks: ReturnType<typeof marksOf>;
  onZoom: (from: number, to: number) => void;
}) {
  const { curve, axis, view, series } = props;
  const metric = metricOf(curve.metric);
  const { x, lines } = useMemo(() => linesOf(curve, axis, view.smooth, series), [curve, axis, view.smooth, series]);
  const styles = new Set(lines.map((line) => line.style));
  const last = curve.committed.mean.at(-1);
  return (
    <figure class="card">
      <figcaption>
        <h3>{metric.label}</h3>
        <span class="quiet">
          {last === undefined ? "no committed value" : metric.format(last)}
          {styles.has("faint") && " · faint: repeated steps"}
          {styles.has("dashed") && " · dashed: predicted"}
          {view.smooth > 0 && " · smoothed"}
        </span>
      </figcaption>
      <LineChart
        label={`${metric.label} of ${x.length} points; the table below has the values`}
        x={x}
        lines={lines}
        marks={props.marks}
        axis={axis.kind}
        isLogarithmic={view.isLogarithmic}
        format={metric.format}
        cursor={props.cursor}
        onZoom={props.onZoom}
        onReset={() => setQuery({ from: undefined, to: undefined })}
      />
    </figure>
  );
}

function Readout({ row, shown }: { row: PointRow; shown: readonly Schema<"Curve">[] }) {
  return (
    <>
      <b>step {numberText(row.step, 12)}</b> <span class="quiet">{timeText(row.time_s)}</span>
      {shown.map(({ metric, repeated }) => {
        const { label, format } = metricOf(metric);
        const value = row.values[metric];
        return (
          <span key={metric}>
            {label} <b>{value === undefined ? "–" : format(value)}</b>
            {repeated.map(({ generation, points }) => {
              const found = points.mean[points.steps.indexOf(row.step)];
              return found === undefined ? null : (
                <span key={generation} class="quiet">
                  {" "}
                  (generation {generation}: {format(found)})
                </span>
              );
            })}
          </span>
        );
      })}
    </>
  );
}

function Marks({ job, generations }: { job: Schema<"Job">; generations: readonly Schema<"Generation">[] }) {
  if (generations.length < 2 && job.incidents.length === 0) return null;
  return (
    <ul class="curves-marks quiet" aria-label="Marks">
      {generations.slice(1).map((each) => (
        <li key={each.number}>
          ┊ generation {each.number} from step {numberText(each.start_step, 12)} ({each.cause})
        </li>
      ))}
      {job.incidents.map((each) => (
        <li key={each.id}>
          ▲ incident {each.number}: {each.reason ?? each.cause}
          {each.at_step !== null && each.at_step !== undefined && ` at step ${numberText(each.at_step, 12)}`}
        </li>
      ))}
    </ul>
  );
}

function rowAt(rows: readonly PointRow[], axis: Axis, place: number | undefined): PointRow | undefined {
  if (place === undefined) return undefined;
  let best: PointRow | undefined;
  let distance = Number.POSITIVE_INFINITY;
  for (const row of rows) {
    const found = Math.abs(axis.place(row.step, row.time_s) - place);
    if (found < distance) [best, distance] = [row, found];
  }
  return best;
}

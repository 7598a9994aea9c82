/** The values under the cursor as text, with the line of each job. */

import type { Signal } from "@preact/signals";
import type { ChartLine } from "../../components/chart/options";
import { useKeys } from "../../state/keys";
import { numberText } from "../../text/numbers";
import { durationText } from "../../text/time";
import type { CompareAxis } from "./curves";
import { LineSample } from "./line-sample";

export function Readout(props: {
  x: readonly number[];
  lines: readonly ChartLine[];
  axis: CompareAxis;
  format: (value: number) => string;
  cursor: Signal<number | undefined>;
}) {
  const { x, lines, axis, format, cursor } = props;
  const place = cursor.value;
  const index = place === undefined ? x.length - 1 : nearest(x, place);
  const move = (distance: number) => {
    const from = place === undefined ? x.length : index;
    cursor.value = x[Math.min(x.length - 1, Math.max(0, from + distance))];
  };
  useKeys([
    { key: "ArrowLeft", label: "Move the cursor to the previous point", run: () => move(-1) },
    { key: "ArrowRight", label: "Move the cursor to the next point", run: () => move(1) },
  ]);
  const shown = x[index] ?? 0;
  return (
    <p class="compare-readout" role="status">
      <b>{axis === "step" ? `step ${numberText(shown, 12)}` : `after ${durationText(shown)}`}</b>
      {lines.map((line) => {
        const value = line.values[index];
        return (
          <span key={line.series}>
            <LineSample series={line.series} /> {line.label}{" "}
            <b>{value === null || value === undefined ? "–" : format(value)}</b>
          </span>
        );
      })}
    </p>
  );
}

function nearest(x: readonly number[], place: number): number {
  let best = 0;
  for (const [index, each] of x.entries()) {
    if (Math.abs(each - place) < Math.abs((x[best] ?? 0) - place)) best = index;
  }
  return best;
}

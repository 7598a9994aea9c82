/** The part of the axis that the chart shows. Dragging over the chart, or these fields, choose it. */

import { setQuery } from "../../state/router";
import type { CompareAxis, Range } from "./curves";

const UNITS: Record<CompareAxis, string> = { step: "step", time: "second" };

export function RangeFields({ axis, range }: { axis: CompareAxis; range: Range }) {
  const { from, to } = range;
  return (
    <>
      <EndField label={`From ${UNITS[axis]}`} name="from" value={from} />
      <EndField label={`To ${UNITS[axis]}`} name="to" value={to} />
      {(from !== undefined || to !== undefined) && (
        <button type="button" onClick={() => setQuery({ from: undefined, to: undefined })}>
          Show all
        </button>
      )}
    </>
  );
}

/** Return an end of a range as the address contains it. */
export function endText(value: number): string {
  return String(Number(Math.max(0, value).toPrecision(6)));
}

function EndField({ label, name, value }: { label: string; name: "from" | "to"; value: number | undefined }) {
  return (
    <label>
      {label}
      <input
        type="number"
        min="0"
        step="any"
        key={value}
        defaultValue={value ?? ""}
        placeholder={name === "from" ? "first" : "last"}
        onChange={(event) => setQuery({ [name]: event.currentTarget.value || undefined })}
      />
    </label>
  );
}

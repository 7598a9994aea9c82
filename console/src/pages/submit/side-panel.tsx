/** Beside the editor: the verdict of the server, and the help for the field under the caret. */

import type { InvalidField } from "../../api/problem";
import type { Schema } from "../../api/types";
import { Badge } from "../../components/badge";
import { ShortTable } from "../../components/short-table";
import { bytesText, countText } from "../../text/numbers";
import { durationText } from "../../text/time";
import type { FieldHelp } from "./schema";
import { invalidFields, type Verdict } from "./validation";

export function VerdictPanel({ verdict, goTo }: { verdict: Verdict | undefined; goTo: (line: number) => void }) {
  if (verdict === undefined) return <p class="notice">Checking…</p>;
  if (verdict.valid !== undefined) return <ValidSpec valid={verdict.valid} sizes={verdict.sizes} />;
  const fields = invalidFields(verdict);
  return (
    <section class="notice error" aria-label="Invalid fields">
      <p>
        <b>
          {fields.length === 0
            ? verdict.problem?.message
            : `${countText(fields.length, "field is", "fields are")} invalid`}
        </b>
      </p>
      <ul class="submit-faults">
        {fields.map((field) => (
          <Fault key={`${field.pointer} ${field.detail}`} field={field} goTo={goTo} />
        ))}
      </ul>
    </section>
  );
}

function Fault({ field, goTo }: { field: InvalidField; goTo: (line: number) => void }) {
  const line = field.line ?? undefined;
  const detail = field.detail.replace(/^line \d+, column \d+: /, "");
  return (
    <li>
      {line !== undefined && (
        <button type="button" class="link" onClick={() => goTo(line)}>
          Line {line}
        </button>
      )}{" "}
      {field.pointer !== "" && <code>{field.pointer.slice(1).replaceAll("/", ".")}</code>} {detail}
    </li>
  );
}

function ValidSpec({ valid, sizes }: { valid: Schema<"ValidatedSpec">; sizes: Schema<"SpecSizes"> | undefined }) {
  const { spec, ladder } = valid;
  return (
    <section class="notice good" aria-label="Valid spec">
      <p>
        <b>The spec is valid.</b> Job {spec.name} of project {spec.project}.
      </p>
      <p>
        It can run with {countText(ladder.length, "layout")}
        {spec.resources.device === "cuda" ? " on GPUs" : " on CPUs"}:
      </p>
      {sizes === undefined || sizes.why_not !== "" ? (
        <ul class="submit-layouts">
          {ladder.map((layout) => (
            <li key={layoutText(layout)}>{layoutText(layout)}</li>
          ))}
        </ul>
      ) : (
        <SizeTable sizes={sizes} />
      )}
      {sizes !== undefined && sizes.why_not !== "" && (
        <p class="quiet">The planner predicts no step times: {sizes.why_not}</p>
      )}
    </section>
  );
}

function SizeTable({ sizes }: { sizes: Schema<"SpecSizes"> }) {
  return (
    <>
      <ShortTable
        label="Predicted step time of each layout"
        rows={sizes.sizes}
        rowKey={(row) => layoutText(row.layout)}
        columns={[
          { id: "layout", label: "Layout", cell: (row) => layoutText(row.layout) },
          { id: "step", label: "Step", isNumber: true, cell: (row) => durationText(row.expected_step_s) },
          { id: "memory", label: "Memory", isNumber: true, cell: (row) => <Memory row={row} /> },
        ]}
      />
      <p class="quiet">
        Predicted by the planner for the open nodes of the cluster
        {sizes.open_ranks !== null && `, which hold ${countText(sizes.open_ranks, "rank")} if they are idle`}.
      </p>
    </>
  );
}

function Memory({ row }: { row: Schema<"JobSize"> }) {
  if (row.prediction === null) return <>–</>;
  const { peak_bytes: peakBytes, capacity_bytes: capacityBytes } = row.prediction;
  const isTooLarge = peakBytes > capacityBytes;
  return (
    <>
      {bytesText(peakBytes)}
      {isTooLarge && <Badge tone="bad">too large</Badge>}
    </>
  );
}

function layoutText(layout: Schema<"ValidatedSpec">["ladder"][number]): string {
  const axes = { replicas: layout.dp_replicate, shards: layout.dp_shard, cp: layout.cp, tp: layout.tp, pp: layout.pp };
  const ranks = Object.values(axes).reduce((product, size) => product * (size ?? 1), 1);
  const parts = Object.entries(axes)
    .filter(([, size]) => (size ?? 1) > 1)
    .map(([name, size]) => `${name} ${size}`);
  return `${countText(ranks, "rank")}${parts.length > 0 ? ` = ${parts.join(" × ")}` : ""}`;
}

export function HelpPanel({ path, help }: { path: readonly string[]; help: FieldHelp | undefined }) {
  return (
    <section class="card submit-help" aria-label="Help">
      <h2>{path.length === 0 ? "Help" : path.join(".")}</h2>
      {help === undefined ? (
        <p class="quiet">
          Put the caret on a field to read about it. <kbd>Ctrl</kbd> <kbd>Space</kbd> lists fields and values,{" "}
          <kbd>Ctrl</kbd> <kbd>Enter</kbd> submits.
        </p>
      ) : (
        <>
          <p>{help.description}</p>
          <p class="quiet">
            {help.about}
            {help.isRequired && "; required"}
          </p>
        </>
      )}
    </section>
  );
}

/** Checkpoints of a job, with what can be done with each. */

import { useState } from "preact/hooks";
import type { Schema } from "../../../api/types";
import { type Column, DataTable } from "../../../components/data-table";
import { ResubmitDialog } from "../../../components/resubmit-dialog";
import { EmptyState } from "../../../components/states";
import { setQuery } from "../../../state/router";
import { bytesText, countText, numberText } from "../../../text/numbers";
import { agoText, durationText } from "../../../text/time";
import { useJob } from "../job-context";
import { ExportDialog } from "./export-dialog";
import { PinDialog } from "./pin-dialog";
import { VerifyDialog } from "./verify-dialog";

type Checkpoint = Schema<"Checkpoint">;
type Opened = { kind: "verify" | "pin" | "export" | "start"; checkpoint: Checkpoint };

export function Checkpoints(props: {
  list: readonly Checkpoint[];
  generations: readonly Schema<"Generation">[];
  isAll: boolean;
  refresh: () => void;
}) {
  const { list, isAll, refresh } = props;
  const { job } = useJob();
  const [opened, setOpened] = useState<Opened>();
  const close = () => setOpened(undefined);
  const columns: Column<Checkpoint>[] = [
    { id: "step", label: "Step", isNumber: true, width: 6, cell: (row) => numberText(row.step, 15) },
    { id: "state", label: "State", width: 9.5, cell: (row) => stateText(row, isUsable(row, props.generations)) },
    {
      id: "actions",
      label: "Actions",
      width: 16,
      cell: (row) => <Actions row={row} canStart={isUsable(row, props.generations)} open={setOpened} />,
    },
    { id: "saved", label: "Saved", width: 8, cell: (row) => agoText(row.created_at) },
    { id: "size", label: "Size", isNumber: true, width: 6, cell: (row) => bytesText(row.size_bytes) },
    { id: "files", label: "Files", isNumber: true, width: 4.5, cell: (row) => numberText(row.files, 9) },
    { id: "took", label: "Took", isNumber: true, width: 5.5, cell: (row) => durationText(row.duration_s) },
    { id: "stall", label: "Stall", isNumber: true, width: 5.5, cell: (row) => durationText(row.stall_s) },
    { id: "loss", label: "Held-out loss", isNumber: true, width: 8.5, cell: (row) => numberText(row.validation_loss) },
    { id: "uri", label: "Where", cell: (row) => <span title={row.uri}>{row.uri}</span> },
  ];
  const kept = list.filter((each) => each.removed_at === null);
  return (
    <section class="card data-checkpoints" aria-labelledby="data-checkpoints-title">
      <header class="row">
        <h2 id="data-checkpoints-title">Checkpoints</h2>
        <span class="quiet">
          {countText(kept.length, "checkpoint")}, {bytesText(kept.reduce((sum, each) => sum + each.size_bytes, 0))} in{" "}
          <code>{job.storage_uri}</code>, in the format of torch.distributed.checkpoint
        </span>
        <label class="check">
          <input type="checkbox" checked={isAll} onChange={() => setQuery({ removed: isAll ? undefined : "true" })} />
          Show removed ones
        </label>
      </header>
      {list.length === 0 ? (
        <EmptyState title="No checkpoints">
          <p>
            The job has saved none yet. It saves one at each <code>checkpoint.every</code> of its spec, and one of its
            last step.
          </p>
        </EmptyState>
      ) : (
        <div class="data-table" style={{ height: `${Math.min(14, list.length + 1) * 34 + 24}px` }}>
          <DataTable
            label="Checkpoints"
            columns={columns}
            rows={[...list].reverse()}
            rowKey={(row) => `${row.step}.${row.generation}`}
          />
        </div>
      )}
      {opened?.kind === "verify" && <VerifyDialog checkpoint={opened.checkpoint} onClose={close} />}
      {opened?.kind === "pin" && <PinDialog checkpoint={opened.checkpoint} onClose={close} onDone={refresh} />}
      {opened?.kind === "export" && <ExportDialog checkpoint={opened.checkpoint} onClose={close} />}
      {opened?.kind === "start" && job.spec && (
        <ResubmitDialog job={job} spec={job.spec} step={opened.checkpoint.step} onClose={close} />
      )}
    </section>
  );
}

function Actions(props: { row: Checkpoint; canStart: boolean; open: (opened: Opened) => void }) {
  const { row, canStart, open } = props;
  const { job } = useJob();
  if (row.removed_at !== null) return <span class="quiet">–</span>;
  const of = `step ${row.step}`;
  const button = (kind: Opened["kind"], text: string) => (
    <button type="button" class="link" aria-label={`${text} ${of}`} onClick={() => open({ kind, checkpoint: row })}>
      {text}
    </button>
  );
  return (
    <span class="data-actions">
      {button("verify", "Verify")}
      {button("pin", row.pinned ? "Unpin" : "Pin")}
      {button("export", "Export")}
      {job.spec !== null && canStart && button("start", "Start from")}
    </span>
  );
}

/** Return whether jobs can start from a checkpoint: the steps before it were not repeated later. */
export function isUsable(row: Checkpoint, generations: readonly Schema<"Generation">[]): boolean {
  return generations.every((each) => each.number <= row.generation || each.start_step >= row.step);
}

function stateText(row: Checkpoint, canStart: boolean): string {
  if (row.removed_at !== null) return `removed ${agoText(row.removed_at)}`;
  if (!canStart) return "repeated later";
  return row.pinned ? "loadable, pinned" : "loadable";
}

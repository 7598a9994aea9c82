/** Pin or unpin a checkpoint. */

import { change } from "../../../api/client";
import type { Schema } from "../../../api/types";
import { ActionDialog } from "../../../components/action-dialog";
import { commandText } from "../../../text/commands";
import { useJob } from "../job-context";

const PATH = "/v1/jobs/{job}/checkpoints/{step}/pin";

export function PinDialog(props: { checkpoint: Schema<"Checkpoint">; onClose: () => void; onDone: () => void }) {
  const { job } = useJob();
  const { step, pinned } = props.checkpoint;
  const path = { job: job.id, step };
  const method = pinned ? "delete" : "put";
  const verb = pinned ? "Unpin" : "Pin";
  const action = {
    title: `${verb} step ${step}`,
    requests: [{ method, path: PATH, values: path }],
    commands: [commandText("regroup", verb.toLowerCase(), `${job.id}@${step}`)],
    run: (isDryRun: boolean) => change(method, PATH, { path, query: { dry_run: isDryRun } }),
    done: `Step ${step} is ${pinned ? "unpinned" : "pinned"}`,
  };
  return (
    <ActionDialog
      action={action}
      onClose={props.onClose}
      onDone={props.onDone}
      effect={() => (
        <p>
          {pinned
            ? `Retention may remove the checkpoint of step ${step}: the spec keeps the newest ones only.`
            : `Retention does not remove the checkpoint of step ${step}, until someone unpins it.`}
        </p>
      )}
    />
  );
}

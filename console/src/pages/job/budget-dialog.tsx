/** The budget of a job: what it may use before it is suspended. */

import { useState } from "preact/hooks";
import { change } from "../../api/client";
import type { Schema } from "../../api/types";
import { type Action, ActionDialog } from "../../components/action-dialog";
import { commandText } from "../../text/commands";
import { type BudgetUnit, budgetOf, budgetText, type JobBudget } from "./budget";

type Job = Schema<"Job">;

export function BudgetDialog(props: { job: Job; onClose: () => void; onDone: () => void }) {
  const { job } = props;
  const before = budgetOf(job);
  const [amount, setAmount] = useState(before === undefined ? "" : String(before.amount));
  const [unit, setUnit] = useState<BudgetUnit>(before?.unit ?? "device_hours");
  // An amount that is no number is sent as it is, so that the server names the mistake.
  const body = { [unit]: amount === "" ? null : Number(amount) } as Schema<"UsageBudget">;
  const option = unit === "cost" ? "--cost" : "--device-hours";
  const action: Action<Job> = {
    title: `Set the budget of ${job.name}`,
    requests: [{ method: "put", path: "/v1/jobs/{job}/budget", values: { job: job.id }, body }],
    commands: [commandText("regroup", "budget", job.id, option, amount)],
    run: (isDryRun) =>
      change("put", "/v1/jobs/{job}/budget", { path: { job: job.id }, query: { dry_run: isDryRun }, body }),
    done: `The budget of ${job.name} is set`,
  };
  return (
    <ActionDialog
      action={action}
      effect={(found) => <Effect before={before} job={found} />}
      onClose={props.onClose}
      onDone={props.onDone}
    >
      <div class="row">
        <label>
          Budget
          <input
            type="number"
            min="0"
            step="any"
            value={amount}
            onInput={(event) => setAmount(event.currentTarget.value)}
          />
        </label>
        <label>
          Unit of the budget
          <select value={unit} onInput={(event) => setUnit(event.currentTarget.value as BudgetUnit)}>
            <option value="device_hours">device-hours</option>
            <option value="cost">money</option>
          </select>
        </label>
      </div>
    </ActionDialog>
  );
}

function Effect({ before, job }: { before: JobBudget | undefined; job: Job }) {
  const after = budgetOf(job);
  if (after === undefined) return null;
  const text = budgetText(after);
  const now = before === undefined ? ", and had no budget" : `, and could use ${budgetText(before)}`;
  return (
    <p>
      {job.name} may use {text}
      {before !== undefined && budgetText(before) === text ? ", as before" : now}. All use since its submission counts.
      At the end of the budget, the job saves its next step and is suspended.
      {job.state === "SUSPENDED" && " A job that was suspended at its budget queues again if this is enough."}
    </p>
  );
}

/** The budget of a job as a value and as text. Pure. */

import type { Schema } from "../../api/types";
import { numberText } from "../../text/numbers";

type Job = Schema<"Job">;
export type BudgetUnit = "device_hours" | "cost";

const UNIT_WORDS: Record<BudgetUnit, string> = { device_hours: "device-hours", cost: "(cost)" };
const ENDED: readonly Job["state"][] = ["SUCCEEDED", "FAILED", "CANCELLED"];

/** The budget that holds now: that of the newest request, else that of the spec. */
export interface JobBudget {
  unit: BudgetUnit;
  amount: number;
}

/** Return the budget of a job; undefined if it has none. */
export function budgetOf(job: Pick<Job, "intents" | "spec">): JobBudget | undefined {
  const found = (job.intents.budget ?? job.spec?.budget) as
    | Partial<Record<BudgetUnit, number | null>>
    | null
    | undefined;
  if (found?.device_hours != null) return { unit: "device_hours", amount: found.device_hours };
  return found?.cost != null ? { unit: "cost", amount: found.cost } : undefined;
}

/** Return a budget as text, for example `500 device-hours`. */
export function budgetText(budget: JobBudget): string {
  return `${numberText(budget.amount)} ${UNIT_WORDS[budget.unit]}`;
}

/** Return whether the budget of a job can change. */
export function hasChangeableBudget(job: Pick<Job, "state">): boolean {
  return !ENDED.includes(job.state);
}

/** Devices of a project as parts of its lane. Pure. */

import type { Schema } from "../../api/types";

export interface Lane {
  name: string;
  guaranteed: number;
  limit: number | null;
  /** Devices in use that the project is guaranteed. */
  own: number;
  /** Devices in use above the guarantee. */
  borrowed: number;
  /** Devices that queued jobs request. */
  waiting: number;
  /** Number of queued jobs. */
  waitingJobs: number;
  weight: number;
  budget: number | null;
  budgetUsed: number | null;
  budgetUnit: string;
}

/** Return the lane of a project. */
export function laneOf(project: Schema<"Project">, queued: Schema<"ProjectQueue"> | undefined): Lane {
  const own = Math.min(project.allocated, project.guaranteed ?? 0);
  const budget = project.budget ?? null;
  return {
    name: project.name,
    guaranteed: project.guaranteed ?? 0,
    limit: project.limit ?? null,
    own,
    borrowed: project.allocated - own,
    waiting: queued?.devices ?? 0,
    waitingJobs: queued?.jobs ?? project.queued,
    weight: project.weight ?? 1,
    budget: budget === null ? null : (budget.device_hours ?? budget.cost ?? null),
    budgetUsed: project.budget_used ?? null,
    budgetUnit: budget?.cost ? "money" : "device-hours",
  };
}

/** Return the number of devices at the end of the scale that all lanes share. */
export function scaleOf(lanes: readonly Lane[]): number {
  return Math.max(
    1,
    ...lanes.map((lane) => Math.max(lane.guaranteed, lane.limit ?? 0, lane.own + lane.borrowed + lane.waiting)),
  );
}

/** A notice of the server that something changed, and what it concerns. Pure. */

/** Something changed. `job` is absent for a change that belongs to no job. */
export interface Change {
  number: number;
  topic: "job" | "node" | "project" | "stream";
  /** Type of the job's event, or what was done to the object. */
  kind: string;
  job?: string | null;
  project?: string | null;
  /** Number of the event of the job: the submission is 1. */
  event?: number | null;
  /** State of the job after the change. */
  state?: string | null;
}

const PROGRESS: ReadonlySet<string> = new Set(["step", "report", "checkpoint", "checkpoint_removed", "mirror", "save"]);

/** True for the notice that others were removed: any object can have changed. */
export function isMissed(change: Change): boolean {
  return change.topic === "stream" && change.kind === "missed";
}

/** True for the notice with which the stream begins: nothing changed. */
export function isStart(change: Change): boolean {
  return change.topic === "stream" && change.kind === "start";
}

/** True if nodes, or what jobs have of them, can have changed. A submitted job has nothing yet. */
export function concernsNodes(change: Change): boolean {
  if (change.topic === "job") return change.event !== 1 && !PROGRESS.has(change.kind);
  return change.topic === "node";
}

/** True if the queue, or the state of a job, can have changed. Progress of a job changes neither. */
export function concernsQueue(change: Change): boolean {
  return !PROGRESS.has(change.kind);
}

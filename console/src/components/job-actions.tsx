/** Suspend, resume, cancel and release jobs: what is possible, and the actions with their effect on each job. */

import type { ComponentChildren } from "preact";
import { change } from "../api/client";
import { Problem, toProblem } from "../api/problem";
import type { Schema } from "../api/types";
import { type CurlRequest, commandText } from "../text/commands";
import { countText } from "../text/numbers";
import { type Action, ActionDialog } from "./action-dialog";
import { JobStateBadge } from "./badge";

export type JobVerb = "suspend" | "resume" | "cancel" | "release";

/** What an action needs to know of a job. */
export type JobOfAction = Pick<Schema<"JobSummary">, "id" | "name" | "state"> &
  Partial<Pick<Schema<"Job">, "intents" | "conditions">>;

/** What an action does, or did, to one job. */
export interface JobOutcome {
  job: JobOfAction;
  /** The job after the action; undefined if it was refused. */
  result?: Schema<"Job">;
  problem?: Problem;
}

/** Largest number of jobs of one action. */
export const MOST_JOBS_OF_ACTION = 100;
const PARALLEL = 6;
const ENDED: readonly Schema<"JobState">[] = ["SUCCEEDED", "FAILED", "CANCELLED"];

interface Wording {
  title: string;
  done: string;
  path: `/v1/jobs/{job}/${JobVerb}`;
  isDangerous: boolean;
  /** What follows if the state does not change at once. */
  effect: string;
}

const WORDINGS: Record<JobVerb, Wording> = {
  suspend: {
    title: "Suspend",
    done: "Suspended",
    path: "/v1/jobs/{job}/suspend",
    isDangerous: false,
    effect: "saves its next step, then releases its nodes; no step is lost",
  },
  resume: {
    title: "Resume",
    done: "Resumed",
    path: "/v1/jobs/{job}/resume",
    isDangerous: false,
    effect: "goes back to the queue, and continues from its newest checkpoint",
  },
  cancel: {
    title: "Cancel",
    done: "Cancelled",
    path: "/v1/jobs/{job}/cancel",
    isDangerous: true,
    effect: "stops all its ranks, then ends; it cannot be resumed",
  },
  release: {
    title: "Release",
    done: "Released",
    path: "/v1/jobs/{job}/release",
    isDangerous: true,
    effect: "ends as failed and releases the nodes that it holds; nobody can inspect its processes any more",
  },
};

/** Return whether a job may accept an action. The server decides. */
export function isPossible(verb: JobVerb, job: JobOfAction): boolean {
  if (verb === "resume") return job.state === "SUSPENDED" || job.intents?.suspend !== undefined;
  if (verb === "cancel") return !ENDED.includes(job.state);
  if (verb === "suspend") return ![...ENDED, "SUSPENDED", "DRAINING"].includes(job.state);
  return job.conditions?.some((condition) => condition.type === "Held") ?? false;
}

export const suspendAction = (jobs: readonly JobOfAction[]) => jobAction("suspend", jobs);
export const resumeAction = (jobs: readonly JobOfAction[]) => jobAction("resume", jobs);
export const cancelAction = (jobs: readonly JobOfAction[]) => jobAction("cancel", jobs);
export const releaseAction = (jobs: readonly JobOfAction[]) => jobAction("release", jobs);

/** Return an action on jobs. The refusal of one job does not stop the others. */
export function jobAction(verb: JobVerb, jobs: readonly JobOfAction[]): Action<JobOutcome[]> {
  const wording = WORDINGS[verb];
  return {
    title: `${wording.title} ${subjectOf(jobs)}`,
    requests: jobs.map((job): CurlRequest => ({ method: "post", path: wording.path, values: { job: job.id } })),
    commands: jobs.map((job) => commandText("regroup", verb, job.id)),
    run: async (isDryRun) => {
      const outcomes = await inParallel(jobs, (job) => outcomeOf(wording, job, isDryRun));
      const [first] = outcomes;
      if (first?.problem !== undefined && outcomes.every((each) => each.problem !== undefined)) {
        throw jobs.length === 1 ? first.problem : new Problem(409, "conflict", refusalText(wording, outcomes));
      }
      return outcomes;
    },
    done: (outcomes) => {
      const changed = outcomes.filter((each) => each.problem === undefined);
      const refused = outcomes.length - changed.length;
      const text = `${wording.done} ${subjectOf(changed.map((each) => each.job))}`;
      return refused === 0 ? text : `${text}; ${countText(refused, "job")} refused`;
    },
    isDangerous: wording.isDangerous,
  };
}

/** A dialog for an action on jobs, with the effect on each of them. */
export function JobActionDialog(props: {
  verb: JobVerb;
  jobs: readonly JobOfAction[];
  onClose: () => void;
  onDone?: (outcomes: JobOutcome[]) => void;
}) {
  const { verb, jobs, onClose } = props;
  return (
    <ActionDialog
      action={jobAction(verb, jobs)}
      effect={(outcomes) => <JobEffects verb={verb} outcomes={outcomes} />}
      onClose={onClose}
      onDone={(outcomes) => props.onDone?.(outcomes)}
    />
  );
}

function JobEffects({ verb, outcomes }: { verb: JobVerb; outcomes: readonly JobOutcome[] }): ComponentChildren {
  return (
    <ul class="job-effects">
      {outcomes.map(({ job, result, problem }) => (
        <li key={job.id}>
          <b>{job.name}</b> <JobStateBadge state={job.state} />{" "}
          {problem !== undefined ? (
            <span class="refused">stays as it is: {problem.message}</span>
          ) : result !== undefined && result.state !== job.state ? (
            <span>
              becomes <JobStateBadge state={result.state} /> at once
            </span>
          ) : (
            <span>{WORDINGS[verb].effect}</span>
          )}
        </li>
      ))}
    </ul>
  );
}

async function outcomeOf(wording: Wording, job: JobOfAction, isDryRun: boolean): Promise<JobOutcome> {
  try {
    const result = await change("post", wording.path, { path: { job: job.id }, query: { dry_run: isDryRun } });
    return { job, result };
  } catch (error) {
    return { job, problem: toProblem(error) };
  }
}

async function inParallel<T, R>(values: readonly T[], call: (value: T) => Promise<R>): Promise<R[]> {
  const found: R[] = new Array(values.length);
  let next = 0;
  const work = async () => {
    for (let index = next++; index < values.length; index = next++) found[index] = await call(values[index] as T);
  };
  await Promise.all(Array.from({ length: PARALLEL }, work));
  return found;
}

function refusalText(wording: Wording, outcomes: readonly JobOutcome[]): string {
  const reasons = [...new Set(outcomes.map((each) => each.problem?.message))];
  return `${wording.title} is not possible for any of the ${outcomes.length} jobs: ${reasons.slice(0, 3).join("; ")}`;
}

function subjectOf(jobs: readonly JobOfAction[]): string {
  return jobs.length === 1 ? (jobs[0] as JobOfAction).name : countText(jobs.length, "job");
}

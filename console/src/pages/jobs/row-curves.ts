/** Short curves of the jobs in view, loaded together, and again when a job has new steps. */

import { type ReadonlySignal, type Signal, signal } from "@preact/signals";
import { get } from "../../api/client";
import type { Row } from "./rows";

export interface RowCurve {
  /** Number of committed steps of the job when the curve was loaded. */
  step: number;
  loss: readonly (number | null)[];
  stepS: readonly (number | null)[];
}

const MOST_JOBS = 100;
const POINTS = 24;
/** Time between two requests, so that a fast job does not cause one for each step. */
const PAUSE_MS = 2_000;

export class RowCurves {
  private readonly found: Signal<ReadonlyMap<string, RowCurve>> = signal(new Map());
  private readonly abort = new AbortController();
  private inView: readonly Row[] = [];
  private isLoading = false;

  /** Curves by the id of the job. */
  get byJob(): ReadonlySignal<ReadonlyMap<string, RowCurve>> {
    return this.found;
  }

  /** Load the curves of the rows that the reader sees. */
  show(rows: readonly Row[]): void {
    this.inView = rows;
    if (!this.isLoading) void this.run();
  }

  stop(): void {
    this.abort.abort();
  }

  private async run(): Promise<void> {
    this.isLoading = true;
    for (;;) {
      const outdated = this.inView.filter((row) => row.step > 0 && this.found.value.get(row.id)?.step !== row.step);
      if (outdated.length === 0 || this.abort.signal.aborted) break;
      await this.load(outdated.slice(0, MOST_JOBS));
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
    this.isLoading = false;
  }

  private async load(rows: readonly Row[]): Promise<void> {
    const query = { job: rows.map((row) => row.id), metric: ["loss", "step_s"], points: POINTS };
    try {
      const { jobs } = await get("/v1/curves", { query, signal: this.abort.signal });
      const curves = new Map(jobs.map((curve) => [curve.job, curve.values]));
      const next = new Map(this.found.value);
      for (const row of rows) {
        const values = curves.get(row.id);
        next.set(row.id, { step: row.step, loss: values?.loss ?? [], stepS: values?.step_s ?? [] });
      }
      this.found.value = next;
    } catch {
      // The table shows dashes; the next change of a row tries again.
      if (!this.abort.signal.aborted) this.inView = [];
    }
  }
}

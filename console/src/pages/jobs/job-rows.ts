/** The jobs of a filter as they are loaded: page by page, and only those again that have changed. */

import { type Signal, signal } from "@preact/signals";
import { get } from "../../api/client";
import { type Problem, toProblem } from "../../api/problem";
import type { ListFilters } from "./filter";
import { addPage, applyStates, concerns, type Rows, visibleFirst } from "./rows";

const FIRST_PAGE = 100;
const NEXT_PAGE = 200;
/** Largest number of ids that one request may have. */
const MOST_IDS = 100;
/** Time between two requests while more jobs have changed than one request may have. */
const PAUSE_MS = 200;

export class JobRows {
  readonly rows: Signal<Rows | undefined> = signal(undefined);
  readonly problem: Signal<Problem | undefined> = signal(undefined);
  private readonly abort = new AbortController();
  private readonly outdated = new Set<string>();
  private inView: readonly string[] = [];
  private token = "";
  private isPaging = false;
  private isUpdating = false;

  constructor(private readonly filters: ListFilters) {}

  /** Load the next page. A call during a request has no effect. */
  loadMore = async (): Promise<void> => {
    if (this.isPaging || this.rows.value?.isComplete) return;
    this.isPaging = true;
    const size = this.rows.value === undefined ? FIRST_PAGE : NEXT_PAGE;
    const query = { ...this.filters, page_size: size, ...(this.token === "" ? {} : { page_token: this.token }) };
    try {
      const page = await get("/v1/jobs", { query, signal: this.abort.signal });
      this.token = page.next_page_token;
      this.rows.value = addPage(this.rows.value ?? { list: [], isComplete: false }, page.jobs, this.token === "");
      this.problem.value = undefined;
    } catch (error) {
      if (!this.abort.signal.aborted) this.problem.value = toProblem(error);
    }
    this.isPaging = false;
  };

  /** Load jobs again that have changed: those in view and new ones at once, the others when they come into view. */
  update(ids: Iterable<string>): void {
    const rows = this.rows.value;
    if (rows === undefined) return;
    for (const id of ids) if (concerns(rows, id)) this.outdated.add(id);
    if (!this.isUpdating) void this.runUpdates();
  }

  /** Tell which jobs the reader sees. */
  show(ids: readonly string[]): void {
    this.inView = ids;
    if (!this.isUpdating && this.outdated.size > 0) void this.runUpdates();
  }

  stop(): void {
    this.abort.abort();
  }

  private async runUpdates(): Promise<void> {
    this.isUpdating = true;
    for (;;) {
      const asked = visibleFirst(this.outdated, this.rows.value?.list ?? [], this.inView).slice(0, MOST_IDS);
      if (asked.length === 0 || this.abort.signal.aborted) break;
      for (const id of asked) this.outdated.delete(id);
      await this.updateSome(asked);
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
    this.isUpdating = false;
  }

  private async updateSome(asked: readonly string[]): Promise<void> {
    const query = { ...this.filters, id: [...asked], page_size: MOST_IDS };
    try {
      const { jobs } = await get("/v1/jobs", { query, signal: this.abort.signal });
      if (this.rows.value !== undefined) this.rows.value = applyStates(this.rows.value, asked, jobs);
      this.problem.value = undefined;
    } catch (error) {
      if (this.abort.signal.aborted) return;
      this.problem.value = toProblem(error);
      for (const id of asked) this.outdated.add(id);
    }
  }
}

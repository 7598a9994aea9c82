/** The part of an output that the page shows, loaded by offset, with the stream of what follows. */

import { type Signal, signal } from "@preact/signals";
import { queryText, target } from "../../../api/client";
import { follow } from "../../../api/event-stream";
import { type Problem, toProblem } from "../../../api/problem";
import type { Schema } from "../../../api/types";
import { addPart, type LogLine, linesOf, type Source } from "./line-buffer";
import { logPath, PART_BYTES, readPart, readSize } from "./output";

/** Most lines on the page; the others are loaded again when they are needed. */
export const MOST_LINES = 4_000;
/** Bytes before a place in the address that are shown too. */
const CONTEXT_BYTES = 8_192;

export class LogModel {
  readonly lines: Signal<readonly LogLine[]> = signal([]);
  readonly problem: Signal<Problem | undefined> = signal(undefined);
  readonly isLoading = signal(true);
  /** Bytes of the whole output. */
  readonly size = signal(0);
  /** True while new output is added as it arrives. */
  readonly isFollowing = signal(false);
  /** True if the page shows the beginning of the output. */
  readonly isAtStart = signal(false);
  private next = 0;
  private abort = new AbortController();
  private stopFollowing: (() => void) | undefined;

  constructor(
    private readonly job: string,
    private readonly source: Source,
    /** True for the newest generation: later ones continue its output. */
    private readonly isNewest: boolean,
  ) {}

  /** Show the end of the output, and follow it. */
  async showEnd(): Promise<void> {
    await this.load(async (signal) => {
      const size = await readSize(this.job, this.source, signal);
      await this.replace(Math.max(0, size - PART_BYTES), signal);
      while (this.next < this.size.value && this.lines.value.length >= MOST_LINES) await this.append(signal);
    });
    if (this.problem.value === undefined) this.follow();
  }

  /** Show the output from an offset on. */
  async showFrom(offset: number): Promise<void> {
    await this.load((signal) => this.replace(Math.max(0, offset - CONTEXT_BYTES), signal));
  }

  /** Add the part before the first line. */
  async showEarlier(): Promise<void> {
    const first = this.lines.value[0];
    if (first === undefined || first.offset === 0 || this.isLoading.value) return;
    await this.load(async (signal) => {
      const begin = Math.max(0, first.offset - PART_BYTES);
      const part = await readPart(this.job, this.source, begin, first.offset - begin, signal);
      const { lines } = linesOf(part.text, part.offset, this.source);
      const whole = begin === 0 ? lines : lines.slice(1);
      this.stop();
      const all = [...whole, ...this.lines.value];
      this.lines.value = all.slice(0, MOST_LINES);
      if (all.length > MOST_LINES) this.next = all[MOST_LINES]?.offset ?? this.next;
      this.isAtStart.value = begin === 0;
    });
  }

  /** Add the part after the last line. */
  async showLater(): Promise<void> {
    if (this.isFollowing.value || this.isLoading.value) return;
    await this.load((signal) => this.append(signal));
    if (this.next >= this.size.value && this.problem.value === undefined) this.follow();
  }

  /** End all requests. */
  close(): void {
    this.abort.abort();
    this.stop();
  }

  private async replace(offset: number, signal: AbortSignal): Promise<void> {
    this.stop();
    const part = await readPart(this.job, this.source, offset, PART_BYTES, signal);
    const { lines, rest } = linesOf(part.text, part.offset, this.source);
    const whole = offset === 0 ? lines : lines.slice(1);
    const all = [...whole, ...(rest === undefined ? [] : [rest])];
    this.lines.value = all.slice(0, MOST_LINES);
    this.next = all[MOST_LINES]?.offset ?? part.next;
    this.size.value = part.size;
    this.isAtStart.value = (this.lines.value[0]?.offset ?? 0) === 0;
  }

  private async append(signal: AbortSignal): Promise<void> {
    const part = await readPart(this.job, this.source, this.next, PART_BYTES, signal);
    this.add(part.text, this.next, this.source);
    this.next = Math.max(this.next, part.next);
    this.size.value = Math.max(part.size, this.next);
  }

  private follow(): void {
    const generation = this.isNewest ? undefined : this.source.generation;
    const path = logPath(this.job, this.source, { generation, offset: this.next, follow: true });
    this.isFollowing.value = true;
    this.stopFollowing = follow(path, {
      onEvent: (event) => {
        const piece = JSON.parse(event.data) as Schema<"LogPiece">;
        this.add(piece.text, piece.offset, { ...this.source, generation: piece.generation });
        this.size.value = Math.max(this.size.value, this.next);
      },
      onEnd: (problem) => {
        this.isFollowing.value = false;
        if (problem !== undefined) this.problem.value = toProblem(problem);
      },
    });
  }

  private add(text: string, offset: number, source: Source): void {
    this.lines.value = addPart(this.lines.value, text, offset, source, MOST_LINES);
    this.next = offset + new TextEncoder().encode(text).length;
    this.isAtStart.value = (this.lines.value[0]?.offset ?? 0) === 0;
  }

  private stop(): void {
    this.stopFollowing?.();
    this.stopFollowing = undefined;
    this.isFollowing.value = false;
  }

  private async load(work: (signal: AbortSignal) => Promise<void>): Promise<void> {
    this.isLoading.value = true;
    try {
      await work(this.abort.signal);
      this.problem.value = undefined;
    } catch (error) {
      if (!this.abort.signal.aborted) this.problem.value = toProblem(error);
    }
    this.isLoading.value = false;
  }
}

/** The output of all ranks in one stream, in the order in which it arrives. */
export class MergedModel {
  readonly lines: Signal<readonly LogLine[]> = signal([]);
  readonly problem: Signal<Problem | undefined> = signal(undefined);
  readonly isFollowing = signal(true);
  private readonly stopFollowing: () => void;
  private readonly rests = new Map<string, LogLine>();

  constructor(job: string, streams: readonly string[], generation: number | undefined) {
    const path = target("/v1/jobs/{job}/logs/merged", { job });
    this.stopFollowing = follow(`${path}?${queryText({ follow: true, stream: streams, generation })}`, {
      onEvent: (event) => this.add(JSON.parse(event.data) as Schema<"LogPiece">),
      onEnd: (problem) => {
        this.isFollowing.value = false;
        const unfinished = [...this.rests.values()];
        this.lines.value = [...this.lines.value, ...unfinished].slice(-MOST_LINES);
        if (problem !== undefined) this.problem.value = toProblem(problem);
      },
    });
  }

  close(): void {
    this.stopFollowing();
  }

  private add(piece: Schema<"LogPiece">): void {
    const source = { generation: piece.generation, rank: piece.rank, stream: piece.stream };
    const key = `${piece.rank}.${piece.stream}`;
    const before = this.rests.get(key);
    const begin = before?.offset ?? piece.offset;
    const { lines, rest } = linesOf((before?.text ?? "") + piece.text, begin, source);
    if (rest === undefined) this.rests.delete(key);
    else this.rests.set(key, rest);
    this.lines.value = [...this.lines.value, ...lines].slice(-MOST_LINES);
  }
}

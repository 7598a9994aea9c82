/** Server-sent events over `fetch`: `EventSource` cannot send the proof of the session. */

import { fetchApi } from "./client";
import { toProblem } from "./problem";
import { inSlot } from "./stream-slots";
import { visiblePeriod } from "./visibility";

/** One event of a stream. */
export interface StreamEvent {
  id: string;
  kind: string;
  data: string;
}

export interface StreamOptions {
  /** Resume after this id. */
  after?: string;
  onEvent: (event: StreamEvent) => void;
  /** Called with false when the connection is lost, and with true when it is back. */
  onConnection?: (isConnected: boolean) => void;
  /** Called when events are missing that no connection delivers any more. */
  onGap?: () => void;
  /** Called when the server ends the stream for good, or refuses it. */
  onEnd?: (problem?: Error) => void;
}

const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 5_000;

/**
 * Follow a stream while the page is visible, and connect again after its last event whenever it breaks.
 * Return a function that ends it.
 */
export function follow(path: string, options: StreamOptions): () => void {
  const abort = new AbortController();
  void followInSlots(path, options, abort.signal);
  return () => abort.abort();
}

async function followInSlots(path: string, options: StreamOptions, ends: AbortSignal): Promise<void> {
  const place = { last: options.after ?? "" };
  let isOver = false;
  while (!isOver && !ends.aborted) {
    const visible = await visiblePeriod(ends);
    try {
      await inSlot(visible, async () => {
        isOver = await followOnce(path, options, place, visible);
      });
    } catch (error) {
      if (!visible.aborted) throw error;
    }
  }
}

/** Follow a stream until `signal` aborts it. Return true if the server ended it for good. `place` keeps its last id. */
export async function followOnce(
  path: string,
  options: StreamOptions,
  place: { last: string },
  signal: AbortSignal,
): Promise<boolean> {
  let pause = FIRST_PAUSE_MS;
  while (!signal.aborted) {
    try {
      const headers: Record<string, string> = { Accept: "text/event-stream" };
      if (place.last !== "") headers["Last-Event-ID"] = place.last;
      const response = await fetchApi(path, { headers, signal });
      options.onConnection?.(true);
      pause = FIRST_PAUSE_MS;
      for await (const event of readEvents(response)) {
        if (event.id !== "") place.last = event.id;
        if (event.kind === "end") {
          options.onEnd?.();
          return true;
        }
        if (event.kind === "dropped") break;
        options.onEvent(event);
      }
    } catch (error) {
      if (signal.aborted) return false;
      const problem = toProblem(error);
      if (problem.status >= 400 && problem.status < 500 && problem.status !== 429) {
        options.onEnd?.(problem);
        return true;
      }
    }
    if (signal.aborted) return false;
    options.onConnection?.(false);
    await new Promise((resolve) => setTimeout(resolve, pause));
    pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
  }
  return false;
}

async function* readEvents(response: Response): AsyncGenerator<StreamEvent> {
  if (response.body === null) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new EventParser();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield* parser.feed(value);
  }
}

/** Parser of `text/event-stream` (HTML standard, section 9.2.6), fed in pieces. */
export class EventParser {
  private rest = "";
  private event: StreamEvent = { id: "", kind: "message", data: "" };

  /** Return the events that the text completes. */
  feed(text: string): StreamEvent[] {
    const found: StreamEvent[] = [];
    const lines = (this.rest + text).split(/\r\n|\n|\r/);
    this.rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line === "") {
        if (this.event.data !== "") found.push({ ...this.event, data: this.event.data.slice(0, -1) });
        this.event = { id: "", kind: "message", data: "" };
      } else this.read(line);
    }
    return found;
  }

  private read(line: string): void {
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "data") this.event.data += `${value}\n`;
    else if (name === "event") this.event.kind = value;
    else if (name === "id") this.event.id = value;
  }
}

/** A command next to a rank: its output as it arrives. Closing the request ends the command. */

import { fetchApi, target } from "../../../api/client";
import { EventParser } from "../../../api/event-stream";
import { toProblem } from "../../../api/problem";

export interface Exit {
  code: number;
  why: string;
}

export interface ExecEvents {
  onStart: (node: string, generation: number) => void;
  onOutput: (stream: string, text: string) => void;
}

/** Run a command; return its exit. Aborting the signal ends it. */
export async function runCommand(
  job: string,
  command: readonly string[],
  rank: number,
  events: ExecEvents,
  signal: AbortSignal,
): Promise<Exit> {
  const response = await fetchApi(target("/v1/jobs/{job}/exec", { job }), {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "text/event-stream" },
    body: JSON.stringify({ command, rank }),
    signal,
  });
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new EventParser();
  const decoders = new Map<string, TextDecoder>();
  for (;;) {
    const read = await reader?.read().catch((error: unknown) => {
      if (signal.aborted) return { done: true as const, value: undefined };
      throw toProblem(error);
    });
    if (read === undefined || read.done) return { code: -1, why: signal.aborted ? "stopped" : "lost" };
    for (const event of parser.feed(read.value)) {
      const data = JSON.parse(event.data);
      if (event.kind === "started") events.onStart(data.node, data.generation);
      else if (event.kind === "exit") return data as Exit;
      else if (event.kind === "dropped") return { code: -1, why: "access was lost" };
      else if (event.kind === "output") {
        const decoder = decoders.get(data.stream) ?? new TextDecoder();
        decoders.set(data.stream, decoder);
        const bytes = Uint8Array.from(atob(data.data), (character) => character.charCodeAt(0));
        events.onOutput(data.stream, decoder.decode(bytes, { stream: true }));
      }
    }
  }
}

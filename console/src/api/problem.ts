/** An answer of the API that is not a success. */

import type { components } from "./schema";

type Body = components["schemas"]["Problem"];
export type InvalidField = components["schemas"]["InvalidField"];

/** A refusal by the server, or no answer at all (`status` 0). `message` is for people. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly fields: readonly InvalidField[] = [],
  ) {
    super(detail);
    this.name = "Problem";
  }

  /** True if the server could not be reached, or is starting or stopping. */
  get isTransient(): boolean {
    return this.status === 0 || this.status === 502 || this.status === 503 || this.status === 504;
  }
}

/** Return the problem that a response describes. */
export async function readProblem(response: Response): Promise<Problem> {
  let body: Partial<Body> = {};
  try {
    body = (await response.json()) as Partial<Body>;
  } catch {
    // A proxy answers with a page of its own.
  }
  const detail = body.detail ?? `the server answered ${response.status} ${response.statusText}`.trim();
  return new Problem(response.status, body.code ?? "unknown", detail, body.errors ?? []);
}

/** Return any thrown value as a problem. */
export function toProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  if (error instanceof TypeError) return new Problem(0, "unreachable", "the server does not answer");
  return new Problem(0, "unknown", error instanceof Error ? error.message : String(error));
}

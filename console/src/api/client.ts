/** Requests to the API, with types from its OpenAPI document. */

import { signal } from "@preact/signals";
import { apiUrl } from "./location";
import { Problem, readProblem, toProblem } from "./problem";
import type { paths } from "./schema";
import { PROOF_HEADER, storedProof } from "./session";
import type { Answer, Method, PathWith, Request } from "./types";

/** Time for which a request is repeated while no server answers. A server restarts within it. */
const PATIENCE_MS = 30_000;
const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 2_000;

type Values = Record<string, unknown>;

/** Number of requests that wait until a server answers, and are then sent again; the shell shows it. */
export const unanswered = signal(0);

/** Changes without an answer, with their keys: the same change, sent once more by a person, takes effect once. */
const unsettled = new Map<string, string>();

/** Get a resource. */
export function get<P extends PathWith<"get">>(path: P, request: Request<P, "get"> = {}): Promise<Answer<P, "get">> {
  return send("get", path, request as Request<keyof paths, Method>) as Promise<Answer<P, "get">>;
}

/** Send a change. A repeated request has no second effect: it carries the same idempotency key. */
export function change<P extends PathWith<M>, M extends Exclude<Method, "get">>(
  method: M,
  path: P,
  request: Request<P, M> = {},
): Promise<Answer<P, M>> {
  return send(method, path, request as Request<keyof paths, Method>) as Promise<Answer<P, M>>;
}

/** Return the path of a request with its values and its query. */
export function target(path: string, values: Values = {}, query: Values = {}): string {
  const filled = path.replace(/\{([^}]+)\}/g, (_, name: string) => {
    const value = values[name];
    if (value === undefined || value === "") throw new Problem(0, "unknown", `the address ${path} needs a ${name}`);
    return encodeURIComponent(String(value));
  });
  const text = queryText(query);
  return text === "" ? filled : `${filled}?${text}`;
}

/** Return a query as text. Lists repeat their name; absent values are left out. */
export function queryText(query: Values): string {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== undefined && each !== null) found.append(name, String(each));
    }
  }
  return found.toString();
}

/** Send a request as it is; throw a `Problem` unless it succeeds. Used for answers that are not JSON. */
export async function fetchApi(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  headers.set(PROOF_HEADER, storedProof());
  const response = await fetch(apiUrl(path), { ...init, headers, credentials: "same-origin" });
  if (!response.ok) throw await readProblem(response);
  return response;
}

async function send(method: Method, path: string, request: Request<keyof paths, Method>): Promise<unknown> {
  const headers: Record<string, string> = { ...request.headers };
  const init: RequestInit = { method: method.toUpperCase(), headers, signal: request.signal ?? null };
  if (request.body !== undefined) {
    headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(request.body);
  } else if (request.yaml !== undefined) {
    headers["Content-Type"] = "application/yaml";
    init.body = request.yaml;
  }
  const address = target(path, request.path as Values, request.query as Values);
  const content = `${method} ${address} ${init.body ?? ""}`;
  if (method === "post") headers["Idempotency-Key"] ??= unsettled.get(content) ?? newKey();
  const response = await withPatience(() => fetchApi(address, init), request.signal).catch((error: unknown) => {
    const key = headers["Idempotency-Key"];
    if (key !== undefined && toProblem(error).isTransient && !request.signal?.aborted) unsettled.set(content, key);
    else unsettled.delete(content);
    throw error;
  });
  unsettled.delete(content);
  const text = await response.text();
  return text === "" ? undefined : JSON.parse(text);
}

async function withPatience<T>(attempt: () => Promise<T>, signal?: AbortSignal): Promise<T> {
  const end = Date.now() + PATIENCE_MS;
  let isWaiting = false;
  try {
    for (let pause = FIRST_PAUSE_MS; ; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
      try {
        return await attempt();
      } catch (error) {
        if (signal?.aborted) throw error;
        const problem = toProblem(error);
        if (!problem.isTransient || Date.now() + pause > end) throw problem;
      }
      if (!isWaiting) unanswered.value++;
      isWaiting = true;
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  } finally {
    if (isWaiting) unanswered.value--;
  }
}

/** Return a new key. `crypto.randomUUID` needs HTTPS. */
function newKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

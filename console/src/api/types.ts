/** Types of requests and answers, derived from the OpenAPI document of the server. */

import type { components, paths } from "./schema";

/** A schema of the API by its name. */
export type Schema<Name extends keyof components["schemas"]> = components["schemas"][Name];

export type Method = "get" | "post" | "put" | "patch" | "delete";

/** Paths that have an operation with this method. */
export type PathWith<M extends Method> = {
  [P in keyof paths]: paths[P] extends { [K in M]: object } ? (paths[P][M] extends undefined ? never : P) : never;
}[keyof paths];

type Operation<P extends keyof paths, M extends Method> = NonNullable<paths[P][M & keyof paths[P]]>;
type Parameters<O> = O extends { parameters: infer Q } ? Q : never;
type Part<O, K extends string> = Parameters<O> extends { [key in K]?: infer V } ? NonNullable<V> : never;
type Body<O> = O extends { requestBody?: infer R }
  ? NonNullable<R> extends { content: { "application/json": infer B } }
    ? B
    : never
  : never;
type Success<O> = O extends { responses: infer R } ? R[keyof R & (200 | 201 | 202)] : never;

/** What a successful answer contains; `undefined` for one without a body. */
export type Answer<P extends keyof paths, M extends Method> =
  Success<Operation<P, M>> extends { content: { "application/json": infer A } } ? A : undefined;

/** What a request may contain. */
export interface Request<P extends keyof paths, M extends Method> {
  /** Values for the names in the path. */
  path?: { [K in keyof Part<Operation<P, M>, "path">]: string | number };
  query?: Part<Operation<P, M>, "query">;
  body?: Body<Operation<P, M>>;
  /** Body as YAML text, for routes that accept it. */
  yaml?: string;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

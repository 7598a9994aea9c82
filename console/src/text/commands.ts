/** The same request as a `curl` command and as a `regroup` command, to copy into a shell. */

import { target } from "../api/client";
import { apiUrl } from "../api/location";

export interface CurlRequest {
  method: string;
  path: string;
  values?: Record<string, unknown> | undefined;
  query?: Record<string, unknown> | undefined;
  body?: unknown;
  /** Name of a YAML file with the body. */
  yamlFile?: string;
}

/** Return a word as a shell reads it. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** Return a command of its words. Words that are empty or absent are left out. */
export function commandText(...words: (string | undefined)[]): string {
  return words
    .filter((word) => word !== undefined && word !== "")
    .map((word) => quoted(word as string))
    .join(" ");
}

/** Return a `curl` command for a request. It reads the token from `REGROUP_TOKEN`. */
export function curlText(request: CurlRequest): string {
  const url = apiUrl(target(request.path, request.values, request.query)).href;
  const parts = ["curl -fsS"];
  if (request.method !== "get") parts.push(`-X ${request.method.toUpperCase()}`);
  parts.push('-H "Authorization: Bearer $REGROUP_TOKEN"');
  if (request.body !== undefined) {
    parts.push("-H 'Content-Type: application/json'", `-d ${quoted(JSON.stringify(request.body))}`);
  }
  if (request.yamlFile !== undefined) {
    parts.push("-H 'Content-Type: application/yaml'", `--data-binary @${quoted(request.yamlFile)}`);
  }
  return [...parts, quoted(url)].join(" ");
}

/** Values that the completion of the filter offers: those of the jobs that this page has shown, and all projects. */

import { useMemo, useRef } from "preact/hooks";
import { get } from "../../api/client";
import { useResource } from "../../state/resource";
import type { KnownValues } from "./filter";
import type { Row } from "./rows";

const MOST_ROWS = 1_000;
const MOST_VALUES = 300;

/** Return the known values. A filter that is half written shows no jobs, so values of earlier jobs are kept. */
export function useKnownValues(rows: readonly Row[]): KnownValues {
  const seen = useRef({
    project: new Set<string>(),
    author: new Set(["me"]),
    name: new Set<string>(),
    label: new Set<string>(),
  });
  const projects = useResource((signal) => get("/v1/projects", { signal }), []).data.value?.projects;
  return useMemo(() => {
    const { project, author, name, label } = seen.current;
    for (const each of projects ?? []) add(project, each.name);
    for (const job of rows.slice(0, MOST_ROWS)) {
      add(project, job.project);
      add(author, job.author ?? "");
      add(name, job.name);
      for (const [key, value] of Object.entries(job.labels)) add(label, `${key}=${value}`);
    }
    return { project: [...project].sort(), author: [...author], name: [...name].sort(), label: [...label].sort() };
  }, [rows, projects]);
}

function add(values: Set<string>, value: string): void {
  if (value !== "" && values.size < MOST_VALUES) values.add(value);
}

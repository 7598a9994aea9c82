/** The job that the page shows, for its tabs. */

import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Schema } from "../../api/types";

export interface ShownJob {
  job: Schema<"Job">;
  refresh: () => void;
}

export const JobContext = createContext<ShownJob | undefined>(undefined);

/** Return the job of the page. */
export function useJob(): ShownJob {
  const found = useContext(JobContext);
  if (found === undefined) throw new Error("a tab of a job is shown outside the page of a job");
  return found;
}

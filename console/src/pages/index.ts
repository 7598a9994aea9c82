/** All pages, with their addresses. Each is loaded when it is first shown. */

import type { IconName } from "../components/icon";
import type { View } from "../components/lazy-view";

export interface Page {
  /** Address below the console; `:name` stands for one part, a final `*` for all that follows. */
  pattern: string;
  load: () => Promise<{ default: View }>;
  /** Entry in the navigation; `key` opens the page after `g`. */
  nav?: { label: string; icon: IconName; key: string };
  /** Page whose entry is marked in the navigation. */
  parent?: string;
}

export const PAGES: readonly Page[] = [
  { pattern: "", load: () => import("./overview"), nav: { label: "Overview", icon: "overview", key: "o" } },
  { pattern: "jobs", load: () => import("./jobs"), nav: { label: "Jobs", icon: "jobs", key: "j" } },
  { pattern: "submit", load: () => import("./submit"), nav: { label: "Submit", icon: "submit", key: "s" } },
  { pattern: "compare", load: () => import("./compare"), parent: "jobs" },
  { pattern: "jobs/:job", load: () => import("./job"), parent: "jobs" },
  { pattern: "jobs/:job/:tab", load: () => import("./job"), parent: "jobs" },
  { pattern: "cluster", load: () => import("./cluster"), nav: { label: "Cluster", icon: "cluster", key: "c" } },
  { pattern: "queue", load: () => import("./queue"), nav: { label: "Queue and projects", icon: "queue", key: "q" } },
  { pattern: "what-if", load: () => import("./what-if"), nav: { label: "What if", icon: "whatIf", key: "w" } },
  {
    pattern: "reliability",
    load: () => import("./reliability"),
    nav: { label: "Reliability", icon: "reliability", key: "r" },
  },
  { pattern: "usage", load: () => import("./usage"), nav: { label: "Usage", icon: "usage", key: "u" } },
  { pattern: "admin", load: () => import("./admin"), nav: { label: "Admin", icon: "admin", key: "a" } },
  { pattern: "admin/:tab", load: () => import("./admin"), parent: "admin" },
];

const MISSING: Page = { pattern: "*", load: () => import("./not-found") };

/** Return the page of a path with the values of its names. */
export function findPage(path: string): { page: Page; values: Record<string, string> } {
  for (const page of PAGES) {
    const values = matchPath(page.pattern, path);
    if (values !== undefined) return { page, values };
  }
  return { page: MISSING, values: {} };
}

/** Return the values of the names in a pattern; undefined if the path does not match. */
export function matchPath(pattern: string, path: string): Record<string, string> | undefined {
  const expected = pattern.split("/");
  const given = path.split("/");
  if (expected.length !== given.length) return undefined;
  const values: Record<string, string> = {};
  for (const [index, part] of expected.entries()) {
    const value = given[index] ?? "";
    if (part.startsWith(":")) values[part.slice(1)] = decodeURIComponent(value);
    else if (part !== value) return undefined;
  }
  return values;
}

/** The tabs of a job. Each is loaded when it is first shown. */

import type { View } from "../../components/lazy-view";
import type { Tab } from "../../components/tabs";

export interface JobTab extends Tab {
  load: () => Promise<{ default: View }>;
}

export const TABS: readonly [JobTab, ...JobTab[]] = [
  { id: "story", label: "Story", load: () => import("./story") },
  { id: "curves", label: "Curves", load: () => import("./curves") },
  { id: "why", label: "Why", load: () => import("./why") },
  { id: "ranks", label: "Ranks", load: () => import("./ranks") },
  { id: "logs", label: "Logs", load: () => import("./logs") },
  { id: "layout", label: "Layout", load: () => import("./layout") },
  { id: "data", label: "Data and checkpoints", load: () => import("./data") },
  { id: "spec", label: "Spec and events", load: () => import("./spec") },
];

/** Filters with a name, kept in this browser. */

import { signal } from "@preact/signals";

export interface SavedView {
  name: string;
  filter: string;
}

/** Views that everybody has. */
export const FIXED_VIEWS: readonly SavedView[] = [
  { name: "All", filter: "" },
  { name: "Running", filter: "state:RUNNING,RECOVERING,RESIZING" },
  { name: "Waiting", filter: "state:QUEUED,SUSPENDED" },
  { name: "Failed", filter: "state:FAILED" },
  { name: "Mine", filter: "author:me" },
];

const KEY = "regroup-job-views";
const MOST_VIEWS = 50;

/** Views of this browser. */
export const ownViews = signal<readonly SavedView[]>(storedViews());

/** Save a view, in place of the one with the same name. */
export function saveView(view: SavedView): void {
  store([...ownViews.value.filter((each) => each.name !== view.name), view].slice(-MOST_VIEWS));
}

export function deleteView(name: string): void {
  store(ownViews.value.filter((each) => each.name !== name));
}

function store(views: readonly SavedView[]): void {
  ownViews.value = views;
  try {
    localStorage.setItem(KEY, JSON.stringify(views));
  } catch {
    // The views hold until the page closes.
  }
}

function storedViews(): SavedView[] {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(KEY) ?? "[]");
    return Array.isArray(found) ? found.filter(isView) : [];
  } catch {
    return [];
  }
}

function isView(value: unknown): value is SavedView {
  const view = value as SavedView | null;
  return typeof view?.name === "string" && typeof view.filter === "string";
}

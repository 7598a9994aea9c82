/** One connection per browser that says what changed. Pages load again what they show. */

import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { followShared } from "../api/shared-stream";

/** Something changed. `job` is absent for a change that belongs to no job. */
export interface Change {
  number: number;
  topic: "job" | "node" | "project" | "stream";
  kind: string;
  job?: string | null;
  project?: string | null;
}

/** False while the connection is lost; the shell shows it. */
export const isConnected = signal(true);

const PAUSE_MS = 150;
/** Most changes that a hidden page collects. With more, it loads everything again once it is visible. */
const MOST_COLLECTED = 500;
const listeners = new Set<(changes: readonly Change[]) => void>();
let collected: Change[] = [];
let timer: ReturnType<typeof setTimeout> | undefined;

/** Connect. Call once after the sign-in. */
export function connectChanges(): () => void {
  const stop = followShared("/v1/changes?follow=true", {
    onEvent: (event) => {
      const change = JSON.parse(event.data) as Change;
      if (isStart(change)) return;
      collected.push(change);
      if (collected.length > MOST_COLLECTED) collected = [{ number: change.number, topic: "stream", kind: "missed" }];
      timer ??= setTimeout(deliver, PAUSE_MS);
    },
    onConnection: (connected) => {
      // What changed while the connection was lost comes from the stream, which resumes after its last event.
      isConnected.value = connected;
    },
  });
  document.addEventListener("visibilitychange", deliver);
  return () => {
    stop();
    document.removeEventListener("visibilitychange", deliver);
  };
}

/**
 * Call `onChange` soon after changes that `concerns` accepts, at most once per 150 ms.
 *
 * It is also called, with all changes, when the server has removed some before the console got them (see `isMissed`).
 */
export function useChanges(
  concerns: (change: Change) => boolean,
  onChange: (changes: readonly Change[]) => void,
): void {
  const newest = useRef({ concerns, onChange });
  newest.current = { concerns, onChange };
  useEffect(() => {
    const listener = (changes: readonly Change[]) => {
      const found = changes.some(isMissed) ? changes : changes.filter(newest.current.concerns);
      if (found.length > 0) newest.current.onChange(found);
    };
    listeners.add(listener);
    return () => {
      listeners.delete(listener);
    };
  }, []);
}

/** True for the notice that others were removed: any object can have changed. */
export function isMissed(change: Change): boolean {
  return change.topic === "stream" && change.kind === "missed";
}

/** True for the notice with which the stream begins: nothing changed. */
function isStart(change: Change): boolean {
  return change.topic === "stream" && change.kind === "start";
}

/** Tell the listeners what was collected. A hidden page waits until it is visible: nobody sees what it would load. */
function deliver(): void {
  clearTimeout(timer);
  timer = undefined;
  if (document.visibilityState === "hidden" || collected.length === 0) return;
  const changes = collected;
  collected = [];
  for (const listener of listeners) listener(changes);
}

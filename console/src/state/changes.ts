/** One connection per browser that says what changed. Pages load again what they show. */

import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { followShared } from "../api/shared-stream";
import { type Change, isMissed, isStart } from "./change";

export { type Change, concernsNodes, concernsQueue, isMissed } from "./change";

/** False while the connection is lost; the shell shows it. */
export const isConnected = signal(true);

const PAUSE_MS = 150;
/** Shortest time between two portions. A page shows a change within a second, also while many arrive. */
const INTERVAL_MS = 500;
/** Most changes that a hidden page collects. With more, it loads everything again once it is visible. */
const MOST_COLLECTED = 500;
const listeners = new Set<(changes: readonly Change[]) => void>();
let collected: Change[] = [];
let timer: ReturnType<typeof setTimeout> | undefined;
let delivered_ms = Number.NEGATIVE_INFINITY;

/** Follow the changes after the one with the number `after`. Call once after the sign-in. */
export function connectChanges(after: number): () => void {
  const stop = followShared("/v1/changes?follow=true", {
    after: String(after),
    onEvent: (event) => {
      const change = JSON.parse(event.data) as Change;
      if (!isStart(change)) collect(change);
    },
    onGap: () => collect({ number: 0, topic: "stream", kind: "missed" }),
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
 * Call `onChange` soon after changes that `concerns` accepts, within 150 ms, and at most twice per second.
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

function collect(change: Change): void {
  collected.push(change);
  if (collected.length > MOST_COLLECTED) collected = [{ number: change.number, topic: "stream", kind: "missed" }];
  timer ??= setTimeout(deliver, Math.max(PAUSE_MS, delivered_ms + INTERVAL_MS - performance.now()));
}

/** Tell the listeners what was collected. A hidden page waits until it is visible: nobody sees what it would load. */
function deliver(): void {
  clearTimeout(timer);
  timer = undefined;
  if (document.visibilityState === "hidden" || collected.length === 0) return;
  delivered_ms = performance.now();
  const changes = collected;
  collected = [];
  for (const listener of listeners) listener(changes);
}

/** Fewer calls of a function. */

import { useEffect, useRef } from "preact/hooks";

/** Return a function that calls `run` at most once per interval. The last of the calls between is not lost. */
export function useThrottled(run: () => void, interval_ms: number): () => void {
  const newest = useRef(run);
  newest.current = run;
  const state = useRef<{ last: number; timer: ReturnType<typeof setTimeout> | undefined }>({
    last: Number.NEGATIVE_INFINITY,
    timer: undefined,
  });
  useEffect(() => () => clearTimeout(state.current.timer), []);
  return () => {
    if (state.current.timer !== undefined) return;
    const wait = Math.max(0, state.current.last + interval_ms - performance.now());
    state.current.timer = setTimeout(() => {
      state.current = { last: performance.now(), timer: undefined };
      newest.current();
    }, wait);
  };
}

/** Work that is repeated while a page is visible. */

import { useEffect, useRef } from "preact/hooks";

/** Call `run` at an interval while the page is visible, and soon after it is shown again. Undefined ends it. */
export function useInterval(run: () => void, interval_ms: number | undefined): void {
  const newest = useRef(run);
  newest.current = run;
  useEffect(() => {
    if (interval_ms === undefined) return;
    let isDue = false;
    const call = () => {
      isDue = document.hidden;
      if (!isDue) newest.current();
    };
    const onVisibility = () => {
      if (isDue) call();
    };
    const timer = setInterval(call, interval_ms);
    document.addEventListener("visibilitychange", onVisibility);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", onVisibility);
    };
  }, [interval_ms]);
}

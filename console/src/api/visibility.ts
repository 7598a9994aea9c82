/** Work that only a visible page does. */

/** Return an abort signal for one visible period of the page; wait until the page is visible. `ends` also aborts it. */
export async function visiblePeriod(ends: AbortSignal): Promise<AbortSignal> {
  while (!ends.aborted && document.visibilityState === "hidden") await nextChange(ends);
  const period = new AbortController();
  const check = () => {
    if (document.visibilityState !== "hidden" && !ends.aborted) return;
    period.abort();
    document.removeEventListener("visibilitychange", check);
    ends.removeEventListener("abort", check);
  };
  document.addEventListener("visibilitychange", check);
  ends.addEventListener("abort", check);
  check();
  return period.signal;
}

function nextChange(ends: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      document.removeEventListener("visibilitychange", done);
      ends.removeEventListener("abort", done);
      resolve();
    };
    document.addEventListener("visibilitychange", done);
    ends.addEventListener("abort", done);
  });
}

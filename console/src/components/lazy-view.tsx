/** A page or a tab that is loaded when it is first shown. */

import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Problem } from "../api/problem";
import { ErrorState, Loading } from "./states";

/** A component that gets the values of the names in its address. */
export type View = ComponentType<{ values: Record<string, string> }>;

const loaded = new Map<() => Promise<{ default: View }>, View>();

export function LazyView(props: { load: () => Promise<{ default: View }>; values: Record<string, string> }) {
  const { load, values } = props;
  const [view, setView] = useState<{ found: View | undefined }>({ found: loaded.get(load) });
  const [problem, setProblem] = useState<Problem>();
  const [attempt, setAttempt] = useState(0);
  useEffect(() => {
    if (loaded.has(load)) return setView({ found: loaded.get(load) });
    let isCurrent = true;
    load().then(
      (module) => {
        loaded.set(load, module.default);
        if (isCurrent) setView({ found: module.default });
      },
      () => {
        // A new version of the server has other files; a browser does not repeat a failed import by itself.
        if (isCurrent) setProblem(new Problem(0, "unreachable", "a part of the console could not be loaded"));
      },
    );
    return () => {
      isCurrent = false;
    };
  }, [load, attempt]);
  if (view.found !== undefined) return <view.found values={values} />;
  if (problem === undefined) return <Loading label="Loading the page" />;
  const retry = () => (attempt === 0 ? setAttempt(1) : globalThis.location.reload());
  return <ErrorState problem={problem} onRetry={retry} />;
}

/** An action in the page instead of a dialog: its fields, its effect, and one button. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { type Problem, toProblem } from "../api/problem";
import { curlText } from "../text/commands";
import { type Action, ProblemText } from "./action-dialog";
import { CommandBlock } from "./command-block";
import { RepeatNotice } from "./repeat-notice";
import { toast } from "./toasts";

const PAUSE_MS = 250;

/**
 * Show an action where it is needed. It is tried as a dry run when it appears and soon after `action.requests` change,
 * so its effect is visible before the click.
 *
 * `missing` says what a person must still fill in; the button is disabled until it is empty.
 */
export function ActionPanel<T>(props: {
  action: Action<T>;
  effect: (preview: T) => ComponentChildren;
  onDone?: (result: T) => void;
  missing?: string | undefined;
  children?: ComponentChildren;
}) {
  const { action, effect, onDone, missing } = props;
  const [preview, setPreview] = useState<T>();
  const [problem, setProblem] = useState<Problem>();
  const [isBusy, setBusy] = useState(false);
  const newest = useRef(action);
  newest.current = action;
  const curls = action.requests.map(curlText).join("\n");
  useEffect(() => {
    let isCurrent = true;
    const timer = setTimeout(() => {
      newest.current.run(true).then(
        (found) => {
          if (!isCurrent) return;
          setPreview(() => found);
          setProblem(undefined);
        },
        (error) => isCurrent && setProblem(toProblem(error)),
      );
    }, PAUSE_MS);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [curls]);
  const confirm = async () => {
    setBusy(true);
    try {
      const result = await action.run(false);
      toast(typeof action.done === "string" ? action.done : action.done(result));
      onDone?.(result);
    } catch (error) {
      setProblem(toProblem(error));
    }
    setBusy(false);
  };
  return (
    <section class="card action-panel" aria-label={action.title}>
      {props.children}
      <div aria-live="polite">
        {problem ? <ProblemText problem={problem} /> : preview === undefined ? <p>Checking…</p> : effect(preview)}
      </div>
      <div class="row">
        <button
          type="button"
          class={action.isDangerous ? "danger" : "primary"}
          disabled={isBusy || preview === undefined || problem !== undefined || Boolean(missing)}
          onClick={() => void confirm()}
        >
          {action.title}
        </button>
        {missing && <span class="quiet">{missing}</span>}
      </div>
      <RepeatNotice isBusy={isBusy} />
      <CommandBlock commands={action.commands} curl={curls} />
    </section>
  );
}

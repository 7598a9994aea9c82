/** A change before it happens: its effect, and the same as a `curl` and a `regroup` command. */

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { type Problem, toProblem } from "../api/problem";
import { type CurlRequest, curlText } from "../text/commands";
import { CommandBlock } from "./command-block";
import { Dialog } from "./dialog";
import { RepeatNotice } from "./repeat-notice";
import { toast } from "./toasts";

export interface Action<T> {
  /** Verb and object: `Cancel 2 jobs`. Also the text of the button. */
  title: string;
  /** The requests, for `curl`. */
  requests: readonly CurlRequest[];
  /** The `regroup` commands. */
  commands: readonly string[];
  /** Do it, or with `isDryRun` check it and return what it would do. */
  run: (isDryRun: boolean) => Promise<T>;
  /** What happened, for a short message: `Cancelled 2 jobs`. */
  done: string | ((result: T) => string);
  isDangerous?: boolean;
}

/**
 * Show an action. The dialog tries it as a dry run when it opens and whenever `action.requests` change.
 *
 * `children` are fields of the action; `effect` shows the result of the dry run.
 */
export function ActionDialog<T>(props: {
  action: Action<T>;
  effect: (preview: T) => ComponentChildren;
  onClose: () => void;
  onDone?: (result: T) => void;
  children?: ComponentChildren;
}) {
  const { action, effect, onClose, onDone } = props;
  const [preview, setPreview] = useState<T>();
  const [problem, setProblem] = useState<Problem>();
  const [isBusy, setBusy] = useState(false);
  const curls = action.requests.map(curlText).join("\n");
  useEffect(() => {
    let isCurrent = true;
    setProblem(undefined);
    action.run(true).then(
      (found) => isCurrent && setPreview(() => found),
      (error) => {
        if (!isCurrent) return;
        setPreview(undefined);
        setProblem(toProblem(error));
      },
    );
    return () => {
      isCurrent = false;
    };
  }, [curls]);
  const confirm = async () => {
    setBusy(true);
    try {
      const result = await action.run(false);
      toast(typeof action.done === "string" ? action.done : action.done(result));
      onDone?.(result);
      onClose();
    } catch (error) {
      setProblem(toProblem(error));
      setBusy(false);
    }
  };
  const buttons = (
    <>
      <button type="button" onClick={onClose}>
        Back
      </button>
      <button
        type="button"
        class={action.isDangerous ? "danger" : "primary"}
        disabled={isBusy || preview === undefined}
        onClick={() => void confirm()}
      >
        {action.title}
      </button>
    </>
  );
  return (
    <Dialog title={action.title} onClose={onClose} actions={buttons}>
      {props.children}
      <section class="effect" aria-live="polite">
        <h3>Effect</h3>
        {problem ? <ProblemText problem={problem} /> : preview === undefined ? <p>Checking…</p> : effect(preview)}
      </section>
      <RepeatNotice isBusy={isBusy} />
      <CommandBlock commands={action.commands} curl={curls} />
    </Dialog>
  );
}

/** A refusal with the fields that are invalid. */
export function ProblemText({ problem }: { problem: Problem }) {
  return (
    <div class="notice error" role="alert">
      <p>{problem.message}</p>
      {problem.fields.length > 0 && (
        <ul>
          {problem.fields.map((field) => (
            <li key={field.pointer}>
              <code>{field.pointer}</code>: {field.detail}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

/** A value that is shown once, with a button that copies it. */

import { useState } from "preact/hooks";
import { Dialog } from "./dialog";

export function ShownOnce(props: { title: string; value: string; note: string; onClose: () => void }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(props.value);
    setCopied(true);
  };
  const buttons = (
    <>
      <button type="button" onClick={() => void copy()}>
        {isCopied ? "Copied" : "Copy"}
      </button>
      <button type="button" class="primary" onClick={props.onClose}>
        Done
      </button>
    </>
  );
  return (
    <Dialog title={props.title} onClose={props.onClose} actions={buttons}>
      <p class="notice warning">{props.note}</p>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a long value scrolls with the keyboard */}
      <pre tabIndex={0} class="shown-once">
        {props.value}
      </pre>
    </Dialog>
  );
}

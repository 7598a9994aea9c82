/** The same as the page does, as commands to copy. */

import { useState } from "preact/hooks";

export function CommandBlock({ commands, curl }: { commands: readonly string[]; curl: string }) {
  return (
    <details class="commands">
      <summary>As commands</summary>
      <Copied label="regroup" text={commands.join("\n")} />
      <Copied label="curl" text={curl} />
    </details>
  );
}

function Copied({ label, text }: { label: string; text: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
  };
  return (
    <figure>
      <figcaption>
        {label}
        <button type="button" class="link" aria-label={`Copy the ${label} command`} onClick={() => void copy()}>
          {isCopied ? "Copied" : "Copy"}
        </button>
      </figcaption>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a wide command scrolls with the keyboard */}
      <pre tabIndex={0}>{text}</pre>
    </figure>
  );
}

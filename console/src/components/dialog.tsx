/** A modal dialog. Escape closes it, the focus stays inside, and returns to where it was. */

import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { Icon } from "./icon";

/** Time within which a page shows the result of an action. */
const SETTLED_MS = 3_000;

export function Dialog(props: {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  /** Buttons at the end. */
  actions?: ComponentChildren;
  isWide?: boolean;
}) {
  const element = useRef<HTMLDialogElement>(null);
  const title = useId();
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    element.current?.showModal();
    return () => returnFocus(before);
  }, []);
  return (
    <dialog ref={element} class={props.isWide ? "wide" : ""} aria-labelledby={title} onClose={props.onClose}>
      <header>
        <h2 id={title}>{props.title}</h2>
        <button type="button" class="plain" aria-label="Close" onClick={() => element.current?.close()}>
          <Icon name="close" />
        </button>
      </header>
      <div class="content">{props.children}</div>
      {props.actions && <footer>{props.actions}</footer>}
    </dialog>
  );
}

/** Focus what opened the dialog; focus the page if it is gone, as the button of an action that is no longer possible. */
function returnFocus(opener: HTMLElement | null): void {
  const page = document.getElementById("content");
  if (opener === null || opener === document.body || !opener.isConnected) {
    page?.focus();
    return;
  }
  opener.focus();
  if (page === null) return;
  const look = () => {
    const isLost = document.activeElement === document.body || document.activeElement === null;
    if (isLost || (document.activeElement === opener && opener.matches(":disabled"))) page.focus();
  };
  // The browser takes the focus from a removed element only after the change.
  const observer = new MutationObserver(() => requestAnimationFrame(() => setTimeout(look)));
  observer.observe(page, { childList: true, subtree: true, attributeFilter: ["disabled"] });
  setTimeout(() => observer.disconnect(), SETTLED_MS);
}

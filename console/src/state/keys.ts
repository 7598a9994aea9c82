/** Keyboard: `g` and a letter opens a page, `/` goes to the filter, `?` shows the keys. Pages add their own. */

import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { PAGES } from "../pages";
import { navigate } from "./router";

export interface Key {
  /** A value of `KeyboardEvent.key`. */
  key: string;
  label: string;
  run: () => void;
}

/** Keys of the page that is shown. */
export const pageKeys = signal<readonly Key[]>([]);

/** True while the list of keys is shown. */
export const isHelpOpen = signal(false);

const SEQUENCE_MS = 1_500;
let startedAt = 0;

/** Listen to keys of the whole page; return a function that ends it. */
export function installKeys(): () => void {
  document.addEventListener("keydown", onKey);
  return () => document.removeEventListener("keydown", onKey);
}

/** Add keys while a component is shown. They work when no field has the focus. */
export function useKeys(keys: readonly Key[]): void {
  const newest = useRef(keys);
  newest.current = keys;
  useEffect(() => {
    const own = keys.map((each, index) => ({ ...each, run: () => newest.current[index]?.run() }));
    pageKeys.value = [...pageKeys.value, ...own];
    return () => {
      pageKeys.value = pageKeys.value.filter((each) => !own.includes(each));
    };
  }, [keys.map((each) => each.key).join(" ")]);
}

function onKey(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.metaKey || event.ctrlKey || event.altKey || isTyping(event)) return;
  if (document.querySelector("dialog[open]") !== null || isActivation(event)) return;
  const page = Date.now() - startedAt < SEQUENCE_MS ? PAGES.find((each) => each.nav?.key === event.key) : undefined;
  startedAt = 0;
  const own = pageKeys.value.findLast((each) => each.key === event.key);
  if (page !== undefined) navigate(page.pattern);
  else if (own !== undefined) own.run();
  else if (event.key === "g") startedAt = Date.now();
  else if (event.key === "?") isHelpOpen.value = true;
  else if (event.key === "/") document.querySelector<HTMLElement>("[data-filter]")?.focus();
  else return;
  event.preventDefault();
}

/** True for the keys that press a button or follow a link with the focus. They are no keys of the page then. */
function isActivation(event: KeyboardEvent): boolean {
  const element = event.target as Element;
  return ["Enter", " "].includes(event.key) && element.closest("a[href], button, summary, [role=button]") !== null;
}

function isTyping(event: KeyboardEvent): boolean {
  const element = event.target as HTMLElement;
  return element.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(element.tagName);
}

/** Short messages about finished actions. */

import { signal } from "@preact/signals";

const SHOWN_MS = 6_000;
const shown = signal<readonly { id: number; text: string }[]>([]);
let next = 1;

/** Show a message for some seconds. */
export function toast(text: string): void {
  const id = next++;
  shown.value = [...shown.value, { id, text }];
  setTimeout(() => {
    shown.value = shown.value.filter((each) => each.id !== id);
  }, SHOWN_MS);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {shown.value.map((each) => (
        <p key={each.id}>{each.text}</p>
      ))}
    </div>
  );
}

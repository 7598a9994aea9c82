/** Something wide that scrolls by itself, also with the keyboard. */

import type { ComponentChildren } from "preact";

export function ScrollBox({ label, children }: { label: string; children: ComponentChildren }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls with the keyboard
    <section class="scroll-box" tabIndex={0} aria-label={label}>
      {children}
    </section>
  );
}

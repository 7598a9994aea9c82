/** A number with its name. */

import type { ComponentChildren } from "preact";

export function Stat({ label, children, note }: { label: string; children: ComponentChildren; note?: string }) {
  return (
    <div class="stat">
      <span class="label">{label}</span>
      <strong>{children}</strong>
      {note && <span class="quiet">{note}</span>}
    </div>
  );
}

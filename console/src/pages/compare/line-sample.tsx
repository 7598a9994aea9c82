/** A piece of a line with its colour and pattern, for legends. */

import { patternOf } from "./patterns";

export function LineSample({ series }: { series: number }) {
  return (
    <svg class={`compare-sample series-${series}`} width="34" height="8" aria-hidden="true">
      <line x1="0" y1="4" x2="34" y2="4" stroke-dasharray={patternOf(series).join(" ") || "none"} />
    </svg>
  );
}

/** Bytes that are moved, of how many, and how fast: a quiet line with a bar. */

import { bytesText } from "../../text/numbers";
import "./transfer-bar.css";

export interface Transfer {
  label: string;
  doneBytes: number;
  totalBytes: number;
  bytesPerS: number;
}

export function TransferBar({ label, doneBytes, totalBytes, bytesPerS }: Transfer) {
  const rate = doneBytes < totalBytes ? `, ${bytesText(bytesPerS)}/s` : "";
  const text = `${bytesText(doneBytes)} of ${bytesText(totalBytes)}${rate}`;
  return (
    <div class="job-transfer">
      <span>{label}</span>
      <progress aria-label={label} aria-valuetext={text} value={doneBytes} max={Math.max(1, totalBytes)} />
      <span class="quiet">{text}</span>
    </div>
  );
}

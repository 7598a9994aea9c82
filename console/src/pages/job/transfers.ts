/** What a job reads from or writes to durable storage now. Pure. */

import type { Schema } from "../../api/types";
import type { Transfer } from "./transfer-bar";

type Moving = Pick<Schema<"Job">, "phase" | "save">;

/** Return the restore and the save of a job whose progress is known. */
export function transfersOf({ phase, save }: Moving): Transfer[] {
  const found: Transfer[] = [];
  if (phase?.phase === "restoring" && typeof phase.total_bytes === "number") {
    found.push({
      label: "Restoring state from checkpoint",
      doneBytes: phase.done_bytes ?? 0,
      totalBytes: phase.total_bytes,
      bytesPerS: phase.bytes_per_s ?? 0,
    });
  }
  if (save) {
    found.push({
      label: `Writing checkpoint of step ${save.step}`,
      doneBytes: save.done_bytes,
      totalBytes: save.total_bytes,
      bytesPerS: save.bytes_per_s,
    });
  }
  return found;
}

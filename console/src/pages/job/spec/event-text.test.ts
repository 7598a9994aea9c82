import { expect, it } from "vitest";
import { eventText } from "./event-text";

it("describes what happened without JSON", () => {
  expect(eventText("state", { to: "RUNNING", reason: "first_step", message: "" })).toBe("RUNNING (first_step)");
  expect(eventText("generation", { number: 2, world_size: 4, start_step: 149, cause: "rank_exit" })).toBe(
    "generation 2, 4 ranks, from step 149, rank_exit",
  );
  expect(
    eventText("incident", {
      cause: "SIGKILL",
      rank: 1,
      at_step: 149,
      recovery_action: "respawn",
      durations: { total: 1.5 },
    }),
  ).toBe("SIGKILL of rank 1, at step 149, recovery: respawn, 1.5 s in all");
  expect(eventText("checkpoint", { step: 400, size_bytes: 2e9, duration_s: 3 })).toBe("step 400, 2 GB, 3 s");
  expect(eventText("trial", { layout: { tp: 2 }, measured_s: 0.5 })).toBe("tp 2: 500 ms");
  expect(eventText("note", { node: "a".repeat(56), count: 2, why: null })).toBe("node: aaaaaaaa…, count: 2");
});

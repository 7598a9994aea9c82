import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { change, unanswered } from "./client";

const LONG_MS = 60_000;
let keys: (string | null)[] = [];

beforeEach(() => {
  keys = [];
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

/** Answer each request with the next of `answers`; undefined stands for no answer, and the last one is repeated. */
function answer(...answers: (number | undefined)[]): void {
  vi.stubGlobal("fetch", async (_: string, init: RequestInit) => {
    keys.push(new Headers(init.headers).get("Idempotency-Key"));
    const status = answers.length > 1 ? answers.shift() : answers[0];
    if (status === undefined) throw new TypeError("failed to fetch");
    return new Response("{}", { status });
  });
}

const cancel = (job = "a") => change("post", "/v1/jobs/{job}/cancel", { path: { job } });

test("a change without an answer is sent again with the same key, and the page can tell", async () => {
  answer(undefined, 503, 200);
  const done = cancel();
  await vi.advanceTimersByTimeAsync(1);
  expect(unanswered.value).toBe(1);
  await vi.advanceTimersByTimeAsync(LONG_MS);
  await done;
  expect(unanswered.value).toBe(0);
  expect(keys.length).toBe(3);
  expect(new Set(keys).size).toBe(1);
});

test("a change that a person sends again after an outage has the key of the first attempt", async () => {
  answer(undefined);
  const lost = expect(cancel()).rejects.toThrow("the server does not answer");
  await vi.advanceTimersByTimeAsync(LONG_MS);
  await lost;
  answer(200);
  await cancel("b");
  await cancel();
  await cancel();
  const [other, again, later] = keys.slice(-3);
  expect(again).toBe(keys[0]);
  expect(other).not.toBe(keys[0]);
  expect(later).not.toBe(keys[0]);
});

test("a change that was refused has another key when it is sent again", async () => {
  answer(409);
  await expect(cancel()).rejects.toThrow();
  await expect(cancel()).rejects.toThrow();
  expect(new Set(keys).size).toBe(2);
});

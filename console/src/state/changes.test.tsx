import { render } from "preact";
import { useEffect } from "preact/hooks";
import { afterEach, expect, test, vi } from "vitest";
import { type Change, connectChanges, useChanges } from "./changes";

afterEach(() => vi.unstubAllGlobals());

test("the notice with which the stream begins is no change", async () => {
  const received = await receive([
    { number: 4, topic: "stream", kind: "start" },
    { number: 5, topic: "job", kind: "state", job: "a" },
  ]);
  expect(received.ofAll).toEqual([5]);
  expect(received.ofJob).toEqual([]);
});

test("after removed notices every page loads its data again", async () => {
  const received = await receive([
    { number: 4, topic: "stream", kind: "missed" },
    { number: 5, topic: "job", kind: "state", job: "a" },
  ]);
  expect(received.ofAll).toEqual([4, 5]);
  expect(received.ofJob).toEqual([4, 5]);
});

test("only a notice of the stream tells of removed ones", async () => {
  const received = await receive([{ number: 5, topic: "job", kind: "missed", job: "a" }]);
  expect(received.ofAll).toEqual([5]);
  expect(received.ofJob).toEqual([]);
});

/** Return the numbers of the changes that two pages get from a stream: one of everything, and one of the job `b`. */
async function receive(notices: readonly Change[]): Promise<{ ofAll: number[]; ofJob: number[] }> {
  const received = { ofAll: [] as number[], ofJob: [] as number[] };
  const add = (list: number[]) => (changes: readonly Change[]) => {
    list.push(...changes.map((change) => change.number));
  };
  let isShown = false;
  function Pages() {
    useChanges(() => true, add(received.ofAll));
    useChanges((change) => change.job === "b", add(received.ofJob));
    useEffect(() => {
      isShown = true;
    }, []);
    return null;
  }
  const text = notices.map((notice) => `id: ${notice.number}\nevent: change\ndata: ${JSON.stringify(notice)}\n\n`);
  const answers = [new Response(text.join(""))];
  // After its last notice the stream stays open.
  vi.stubGlobal("fetch", async () => answers.pop() ?? new Promise(() => {}));
  const box = document.createElement("div");
  render(<Pages />, box);
  await vi.waitFor(() => expect(isShown).toBe(true), { timeout: 20_000 });
  const disconnect = connectChanges(0);
  try {
    await vi.waitFor(() => expect(received.ofAll).toContain(notices.at(-1)?.number), { timeout: 20_000 });
    return received;
  } finally {
    disconnect();
    render(null, box);
  }
}

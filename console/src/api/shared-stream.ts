/**
 * One stream for all tabs of a browser. One visible tab, the leader, follows the stream and passes its events on.
 *
 * Tabs elect the leader with a lock, which browsers give only to pages on HTTPS and on localhost. Elsewhere each visible
 * tab follows the stream itself.
 */

import { followOnce, type StreamEvent, type StreamOptions } from "./event-stream";
import { sharedLocks } from "./stream-slots";
import { visiblePeriod } from "./visibility";

/** What tabs tell each other. A tab that opens asks with `hello`, and the leader answers with `state`. */
type Message =
  | { kind: "event"; event: StreamEvent }
  | { kind: "state"; last: string; isConnected: boolean }
  | { kind: "hello" };

/** Follow a stream as long as the page exists. Return a function that ends it. */
export function followShared(path: string, options: StreamOptions): () => void {
  const abort = new AbortController();
  void run(path, options, abort.signal);
  return () => abort.abort();
}

async function run(path: string, options: StreamOptions, ends: AbortSignal): Promise<void> {
  const channel = new BroadcastChannel(`regroup ${path}`);
  const place = { last: options.after ?? "" };
  const leader = { isLeading: false, isConnected: false };
  const tell = (message: Message) => channel.postMessage(message);
  const tellState = () => tell({ kind: "state", last: place.last, isConnected: leader.isConnected });
  channel.onmessage = ({ data }: MessageEvent<Message>) => {
    if (data.kind === "hello") {
      if (leader.isLeading) tellState();
    } else if (leader.isLeading) {
      return; // a message of the leader before, which arrives late
    } else if (data.kind === "event") {
      if (data.event.id !== "") place.last = data.event.id;
      options.onEvent(data.event);
    } else {
      // This tab was hidden, or did not exist, while no tab or another one followed the events in between.
      if (isBefore(place.last, data.last)) options.onGap?.();
      if (place.last === "" || isBefore(place.last, data.last)) place.last = data.last;
      options.onConnection?.(data.isConnected);
    }
  };
  ends.addEventListener("abort", () => channel.close());
  const passing: StreamOptions = {
    onEvent: (event) => {
      options.onEvent(event);
      tell({ kind: "event", event });
    },
    onConnection: (isConnected) => {
      leader.isConnected = isConnected;
      options.onConnection?.(isConnected);
      tellState();
    },
    onEnd: (problem) => options.onEnd?.(problem),
  };
  const locks = sharedLocks();
  let isOver = false;
  const lead = async (visible: AbortSignal) => {
    leader.isLeading = true;
    try {
      isOver = await followOnce(path, passing, place, visible);
    } finally {
      leader.isLeading = false;
    }
  };
  tell({ kind: "hello" });
  while (!isOver && !ends.aborted) {
    const visible = await visiblePeriod(ends);
    try {
      if (locks === undefined) await lead(visible);
      else await locks.request(`regroup ${path}`, { signal: visible }, () => lead(visible));
    } catch (error) {
      if (!visible.aborted) throw error;
    }
  }
}

/** True if both ids are numbers and the first one is smaller. */
function isBefore(first: string, second: string): boolean {
  return first !== "" && Number(first) < Number(second);
}

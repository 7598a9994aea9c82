/**
 * Slots for streams. A browser opens at most six connections to a server over HTTP/1.1, for all of its tabs together:
 * without a limit, six streams would stop every other request.
 */

const SLOTS = 3;
const NAME = "regroup-stream";

/** Locks that all tabs share. Browsers offer them only on HTTPS and on localhost. */
export function sharedLocks(): LockManager | undefined {
  return navigator.locks ?? undefined;
}

/** Call `work` in a free slot, at the latest when another tab gives one up. Reject if `signal` aborts the wait. */
export async function inSlot(signal: AbortSignal, work: () => Promise<void>): Promise<void> {
  const locks = sharedLocks();
  if (locks === undefined) return work(); // hidden tabs have no stream, which is limit enough
  for (let slot = 0; slot < SLOTS; slot++) {
    const isDone = await locks.request(`${NAME}-${slot}`, { ifAvailable: true }, async (lock) => {
      if (lock !== null) await work();
      return lock !== null;
    });
    if (isDone) return;
  }
  const slot = Math.floor(Math.random() * SLOTS);
  await locks.request(`${NAME}-${slot}`, { signal }, work);
}

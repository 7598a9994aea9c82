/** Who is signed in. */

import { computed, signal } from "@preact/signals";
import { get } from "../api/client";
import type { Problem } from "../api/problem";
import { toProblem } from "../api/problem";
import type { Schema } from "../api/types";

/** The identity; undefined until it is known. */
export const me = signal<Schema<"Me"> | undefined>(undefined);

/** Why the identity is unknown; its status is 401 if nobody is signed in. */
export const identityProblem = signal<Problem | undefined>(undefined);

/** True if nobody is signed in. */
export const isSignedOut = computed(() => identityProblem.value?.status === 401);

/** Number of the newest change before any page loaded its data. Later ones come from the stream of changes. */
export const firstChange = signal(0);

/** Ask the server who is signed in. */
export async function loadIdentity(): Promise<void> {
  try {
    const [identity, changes] = await Promise.all([get("/v1/me"), get("/v1/changes")]);
    firstChange.value = changes.next_after;
    me.value = identity;
    identityProblem.value = undefined;
  } catch (error) {
    identityProblem.value = toProblem(error);
  }
}

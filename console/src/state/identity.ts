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

/** Ask the server who is signed in. */
export async function loadIdentity(): Promise<void> {
  try {
    me.value = await get("/v1/me");
    identityProblem.value = undefined;
  } catch (error) {
    identityProblem.value = toProblem(error);
  }
}

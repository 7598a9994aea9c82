/** The session of this browser: a cookie that scripts cannot read, and a proof that only pages of this origin can. */

const PROOF_KEY = "regroup-session-proof";

/** Name of the header that carries the proof. Even an empty value keeps the browser's own dialog away. */
export const PROOF_HEADER = "Regroup-Session-Proof";

/** Return the stored proof; empty if this browser is not signed in. */
export function storedProof(): string {
  try {
    return localStorage.getItem(PROOF_KEY) ?? "";
  } catch {
    return "";
  }
}

/** Delete the proof, so that this browser is no longer signed in. */
export function deleteProof(): void {
  try {
    localStorage.removeItem(PROOF_KEY);
  } catch {
    // A browser that stores nothing has nothing to delete.
  }
}

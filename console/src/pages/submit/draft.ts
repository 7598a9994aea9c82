/** The text that was not submitted yet, kept in this browser. */

const KEY = "regroup-spec-draft";

/** Return the draft; undefined if there is none. */
export function storedDraft(): string | undefined {
  try {
    return localStorage.getItem(KEY) ?? undefined;
  } catch {
    return undefined;
  }
}

/** Keep a draft, or remove it. */
export function storeDraft(text: string | undefined): void {
  try {
    if (text === undefined) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, text);
  } catch {
    // The draft holds until the page closes.
  }
}

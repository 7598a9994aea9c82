/** What the server says about a spec while it is written. */

import { signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { change } from "../../api/client";
import { type InvalidField, type Problem, toProblem } from "../../api/problem";
import type { Schema } from "../../api/types";

const PAUSE_MS = 300;

export interface Verdict {
  valid?: Schema<"ValidatedSpec">;
  /** Predictions for the layouts of a valid spec; absent until they are known. */
  sizes?: Schema<"SpecSizes">;
  problem?: Problem;
}

/** Validate a text soon after each change. The verdict is undefined until the first answer. */
export function useValidation(text: string) {
  const verdict = useMemo(() => signal<Verdict | undefined>(undefined), []);
  useEffect(() => {
    const abort = new AbortController();
    const timer = setTimeout(async () => {
      try {
        const valid = await change("post", "/v1/spec/validate", { yaml: text, signal: abort.signal });
        verdict.value = { valid };
        const sizes = await sizesOf(text, abort.signal);
        if (!abort.signal.aborted && sizes !== undefined) verdict.value = { valid, sizes };
      } catch (error) {
        if (!abort.signal.aborted) verdict.value = { problem: toProblem(error) };
      }
    }, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text]);
  return verdict;
}

/** Return the predictions for a valid spec. They are an addition: without them, the spec is as valid. */
function sizesOf(yaml: string, signal: AbortSignal): Promise<Schema<"SpecSizes"> | undefined> {
  return change("post", "/v1/spec/sizes", { yaml, signal }).catch(() => undefined);
}

/** Return the invalid fields of a verdict. A text that is not YAML has one without a name. */
export function invalidFields(verdict: Verdict | undefined): readonly InvalidField[] {
  return verdict?.problem?.fields ?? [];
}

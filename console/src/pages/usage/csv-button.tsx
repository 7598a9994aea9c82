/** The report as CSV, exactly as the API and `regroup usage --csv` give it. */

import { useState } from "preact/hooks";
import { target } from "../../api/client";
import { saveAnswer } from "../../api/download";
import { type Problem, toProblem } from "../../api/problem";
import { dayText } from "../../text/time";
import type { UsageQuery } from "./groups";

export function CsvButton({ request }: { request: UsageQuery }) {
  const [problem, setProblem] = useState<Problem>();
  const save = async () => {
    setProblem(undefined);
    try {
      await saveAnswer(target("/v1/usage", {}, { ...request, format: "csv" }), fileName(request));
    } catch (error) {
      setProblem(toProblem(error));
    }
  };
  return (
    <>
      {problem && (
        <span class="notice error" role="alert">
          {problem.message}
        </span>
      )}
      <button type="button" class="primary" onClick={() => void save()}>
        Download CSV
      </button>
    </>
  );
}

/** A file has the days of its window in its name. */
function fileName(request: UsageQuery): string {
  const last = dayText((request.to ?? Date.now() / 1000) - 1);
  return `usage-${[dayText(request.from), last, request.project].filter(Boolean).join("-")}.csv`;
}

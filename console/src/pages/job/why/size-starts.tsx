/** With which sizes a queued job would start now or sooner. */

import { get } from "../../../api/client";
import { Badge, type Tone } from "../../../components/badge";
import { ResourceView } from "../../../components/resource-view";
import { ShortTable } from "../../../components/short-table";
import { useResource } from "../../../state/resource";
import { href } from "../../../state/router";
import { timeText } from "../../../text/time";
import { answerOf, type Start } from "./starts";

const TONES: Record<Start["confidence"], Tone> = { high: "good", medium: "active", low: "waiting" };

export function SizeStarts({ job }: { job: string }) {
  const found = useResource((signal) => get("/v1/jobs/{job}/starts", { path: { job }, signal }), [job]);
  return (
    <section class="card" aria-labelledby="why-sizes">
      <h2 id="why-sizes">Other sizes</h2>
      <ResourceView resource={found} label="Simulating the queue">
        {({ starts }) => <Starts job={job} starts={starts} />}
      </ResourceView>
    </section>
  );
}

function Starts({ job, starts }: { job: string; starts: readonly Start[] }) {
  return (
    <>
      <p>{answerOf(starts)}</p>
      <ShortTable
        label="Predicted starts by size"
        rows={starts}
        rowKey={(row) => String(row.ranks)}
        columns={[
          { id: "ranks", label: "Ranks", isNumber: true, cell: (row) => row.ranks },
          { id: "start", label: "Predicted start", cell: startText },
          { id: "confidence", label: "Confidence", cell: (row) => <Confidence row={row} /> },
          { id: "way", label: "How", cell: (row) => <Way job={job} row={row} /> },
        ]}
      />
    </>
  );
}

function startText(row: Start): string {
  if (row.is_now) return "now";
  return row.start_s === null ? "later than in a week" : timeText(row.start_s);
}

function Confidence({ row }: { row: Start }) {
  return (
    <>
      <Badge tone={TONES[row.confidence]}>{row.confidence}</Badge> <span class="quiet">{row.basis}</span>
    </>
  );
}

function Way({ job, row }: { job: string; row: Start }) {
  if (row.is_requested) return <>requested</>;
  if (row.is_legal) return <a href={href(`jobs/${job}/layout`)}>Resize it</a>;
  return <a href={href("submit", { from: job })}>Submit a copy with another layout</a>;
}

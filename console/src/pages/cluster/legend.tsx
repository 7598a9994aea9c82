/** The jobs on the map with their letters and colours, and the signs of nodes that take no ranks. */

import { href, setQuery } from "../../state/router";
import { countText } from "../../text/numbers";
import type { Marks } from "./map";
import type { Node } from "./model";

const MOST_JOBS = 40;

export function JobLegend({ nodes, marks }: { nodes: readonly Node[]; marks: Marks }) {
  const names = new Map(nodes.flatMap((node) => node.jobs.map((job) => [job.id, job.name] as const)));
  const jobs = [...marks].slice(0, MOST_JOBS);
  return (
    <section aria-label="Jobs on the map" class="cluster-legend">
      {jobs.map(([id, mark]) => (
        <span key={id} class="cluster-job">
          <i class={`cluster-mark fill-${mark.series}`}>{mark.letter}</i>
          <a href={href(`jobs/${id}`)}>{names.get(id)}</a> {countText(mark.ranks, "rank")}
          <button
            type="button"
            class="link"
            aria-label={`filter: only nodes of ${names.get(id)}`}
            onClick={() => setQuery({ filter: `job:${id}` })}
          >
            filter
          </button>
        </span>
      ))}
      {marks.size > MOST_JOBS && <span class="quiet">and {countText(marks.size - MOST_JOBS, "more job")}</span>}
      <span class="quiet">Signs: ↓ draining, ⊘ cordoned, ! quarantined or fenced, ? unreachable, × lost</span>
    </section>
  );
}

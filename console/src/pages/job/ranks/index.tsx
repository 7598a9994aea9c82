/** The ranks of a job: which work, which wait, which slow the others; their stacks and a terminal. */

import { useMemo } from "preact/hooks";
import { get } from "../../../api/client";
import type { Schema } from "../../../api/types";
import { ResourceView } from "../../../components/resource-view";
import { EmptyState } from "../../../components/states";
import { useChanges } from "../../../state/changes";
import { useInterval } from "../../../state/interval";
import { useResource } from "../../../state/resource";
import { href, query, setQuery } from "../../../state/router";
import { countText, numberText } from "../../../text/numbers";
import { durationText } from "../../../text/time";
import { useJob } from "../job-context";
import { RankGrid } from "./rank-grid";
import { parseRanks, ranksText, STATES } from "./rank-state";
import { RankTable } from "./rank-table";
import { Stacks } from "./stacks";
import { Terminal } from "./terminal";
import "./ranks.css";

const REFRESH_MS = 5_000;
const MOST_RANKS = 4_096;

export default function RanksTab() {
  const { job } = useJob();
  const ranks = useResource(
    (signal) => get("/v1/jobs/{job}/ranks", { path: { job: job.id }, query: { limit: MOST_RANKS }, signal }),
    [job.id],
  );
  useChanges((change) => change.job === job.id, ranks.refresh);
  useInterval(ranks.refresh, REFRESH_MS); // what ranks do is no event: it changes with each step
  return (
    <ResourceView resource={ranks} label="Loading the ranks">
      {(data) => (data.total === 0 ? <NoRanks /> : <Ranks data={data} />)}
    </ResourceView>
  );
}

function NoRanks() {
  const { job } = useJob();
  return (
    <EmptyState title="This job has had no ranks yet">
      <p>
        Ranks appear when the job has nodes. <a href={href(`jobs/${job.id}/why`)}>See why it waits</a>.
      </p>
    </EmptyState>
  );
}

function Ranks({ data }: { data: Schema<"RankViewList"> }) {
  const { job } = useJob();
  const text = query.value.get("ranks") ?? "";
  const selected = useMemo(() => new Set(parseRanks(text)), [text]);
  const view = query.value.get("view") ?? "";
  const select = (ranks: readonly number[]) => setQuery({ ranks: ranksText(ranks) });
  return (
    <div class="ranks">
      <Summary data={data} />
      <div class="ranks-parts">
        <section aria-labelledby="ranks-grid">
          <h2 id="ranks-grid">{countText(data.total, "rank")} by node</h2>
          <RankGrid ranks={data.ranks} selected={selected} onSelect={select} />
          <Legend counts={data.counts} />
        </section>
        <RankTable ranks={data.ranks} generation={data.generation} selected={selected} onSelect={select} />
      </div>
      <section class="card ranks-panel" aria-label="Selected ranks">
        <div class="row">
          <h2>{selected.size === 0 ? "No rank is selected" : `Selected: ${ranksText([...selected])}`}</h2>
          <button
            type="button"
            aria-pressed={view === "stacks"}
            onClick={() => setQuery({ view: view === "stacks" ? "" : "stacks" })}
          >
            {selected.size === 0 ? "Stacks of all ranks" : "Stacks"}
          </button>
          <button
            type="button"
            aria-pressed={view === "terminal"}
            onClick={() => setQuery({ view: view === "terminal" ? "" : "terminal" })}
          >
            Run a command
          </button>
          {[...selected].slice(0, 4).map((rank) => (
            <a key={rank} href={href(`jobs/${job.id}/logs`, { rank: String(rank) })}>
              Log of rank {rank}
            </a>
          ))}
          {selected.size > 0 && (
            <button type="button" class="link" onClick={() => setQuery({ ranks: "" })}>
              Clear
            </button>
          )}
        </div>
        {view === "stacks" && <Stacks job={job.id} selected={selected} />}
        {view === "terminal" && <Terminal job={job.id} ranks={[...selected]} />}
      </section>
    </div>
  );
}

/** The ranks that delay the others, in a sentence, with the way to their stacks. */
function Summary({ data }: { data: Schema<"RankViewList"> }) {
  const slow = data.ranks.filter((each) => each.state === "slow" || each.state === "crowded");
  const behind = data.ranks.filter((each) => each.state === "behind");
  if (slow.length === 0 && behind.length === 0) {
    const isKnown = data.ranks.some((each) => each.state !== "unknown");
    const step = data.step_s === null ? "" : ` A step takes ${durationText(data.step_s)}.`;
    return (
      <p class={isKnown ? "notice good" : "notice"}>
        {isKnown ? `No rank delays the others.${step}` : "No rank reports now: the job starts, recovers or has ended."}
      </p>
    );
  }
  return (
    <ul class="notice warning ranks-summary" aria-label="Ranks that delay the others">
      {[...slow, ...behind].slice(0, 5).map((each) => (
        <li key={each.rank}>
          <span>
            <b>
              Rank {each.rank} on {each.node}
            </b>{" "}
            {STATES[each.state].meaning}
            {each.work_s !== null && `: ${durationText(each.work_s)} in a step`}
            {each.factor !== null && `, ${numberText(each.factor, 3)} × the median`}.
          </span>
          <button
            type="button"
            onClick={() => setQuery({ ranks: String(each.rank), view: "stacks" })}
            aria-label={`Stacks of rank ${each.rank}`}
          >
            Stacks
          </button>
        </li>
      ))}
    </ul>
  );
}

function Legend({ counts }: { counts: Schema<"RankViewList">["counts"] }) {
  return (
    <ul class="ranks-legend" aria-label="Legend">
      {Object.entries(STATES).map(([state, shown]) => (
        <li key={state} title={shown.meaning}>
          <span class={`ranks-cell ${shown.tone}`} aria-hidden="true">
            <b>{shown.letter}</b>
          </span>
          {shown.label} <b>{counts[state] ?? 0}</b>
        </li>
      ))}
    </ul>
  );
}

/** Why a job waits, failed or is slow: one sentence, what to do, and the facts behind both. */

import { get } from "../../../api/client";
import type { Schema } from "../../../api/types";
import { JobStateBadge } from "../../../components/badge";
import { CommandBlock } from "../../../components/command-block";
import { ResourceView } from "../../../components/resource-view";
import { ShareBar } from "../../../components/share-bar";
import { Stat } from "../../../components/stat";
import { useChanges } from "../../../state/changes";
import { useResource } from "../../../state/resource";
import { href } from "../../../state/router";
import { commandText, curlText } from "../../../text/commands";
import { countText, percentText } from "../../../text/numbers";
import { agoText, durationText, timeText } from "../../../text/time";
import { useJob } from "../job-context";
import { Conditions } from "./conditions";
import { FailureCard } from "./failure";
import { MessageText } from "./message-text";
import { SizeStarts } from "./size-starts";
import "./why.css";

const SHOWN_INCIDENTS = 5;

export default function WhyTab() {
  const { job } = useJob();
  const why = useResource((signal) => get("/v1/jobs/{job}/why", { path: { job: job.id }, signal }), [job.id]);
  useChanges((change) => change.job === job.id, why.refresh);
  return (
    <ResourceView resource={why} label="Loading the explanation">
      {(data) => (
        <div class="why">
          <Answer why={data} onRefresh={why.refresh} />
          <FailureCard why={data} />
          <Conditions conditions={data.conditions} />
          {data.state === "QUEUED" && <SizeStarts job={data.id} />}
          <div class="grid">
            <Incidents why={data} />
            <Time why={data} />
          </div>
          <CommandBlock
            commands={[commandText("regroup", "why", data.id)]}
            curl={curlText({ method: "get", path: "/v1/jobs/{job}/why", values: { job: data.id } })}
          />
        </div>
      )}
    </ResourceView>
  );
}

function Answer({ why, onRefresh }: { why: Schema<"Why">; onRefresh: () => void }) {
  const { job } = useJob();
  return (
    <section class="card why-answer" aria-labelledby="why-answer">
      <div class="row">
        <JobStateBadge state={why.state} />
        <span class="quiet">{why.reason}</span>
        <button type="button" onClick={onRefresh}>
          Check again
        </button>
      </div>
      <h2 id="why-answer" class="why-sentence">
        <MessageText text={why.summary} />
      </h2>
      {why.state === "QUEUED" && <Start why={why} queuedFor_s={Date.now() / 1000 - job.created_at} />}
      {why.advice.length > 0 && (
        <>
          <h3>Remedies</h3>
          <ol class="why-advice" aria-label="Remedies">
            {why.advice.map((text) => (
              <li key={text}>
                <MessageText text={text} />
              </li>
            ))}
          </ol>
        </>
      )}
      <Ways why={why} />
    </section>
  );
}

function Start({ why, queuedFor_s }: { why: Schema<"Why">; queuedFor_s: number }) {
  const start_s = why.estimated_start === null ? undefined : Date.parse(why.estimated_start) / 1000;
  return (
    <div class="stats">
      <Stat label="Jobs before it" note={why.queue_position === 0 ? "it is the next one" : ""}>
        {why.queue_position ?? "–"}
      </Stat>
      <Stat
        label="Estimated start"
        note={
          start_s === undefined ? "no job that ends frees enough devices yet" : `${agoText(start_s)}, to the minute`
        }
      >
        {start_s === undefined ? "Not known" : timeText(start_s)}
      </Stat>
      <Stat label="Submitted">{durationText(queuedFor_s)} ago</Stat>
    </div>
  );
}

/** Links to the pages where the causes can be changed. */
function Ways({ why }: { why: Schema<"Why"> }) {
  const { job } = useJob();
  const reasons = new Set(why.conditions.filter((each) => !each.status).map((each) => each.reason));
  const isQuota = reasons.has("project_limit") || reasons.has("project_quota");
  const blockers = why.state === "QUEUED" ? (job.spec?.depends_on ?? []) : [];
  return (
    <p class="row">
      {blockers.map((each) => (
        <a key={each} href={href(`jobs/${each}/why`)}>
          Why {each} has not succeeded
        </a>
      ))}
      {isQuota && <a href={href("queue", { project: job.project })}>Quota of {job.project}</a>}
      {why.state === "QUEUED" && <a href={href("cluster")}>Nodes of the cluster</a>}
      {why.state === "QUEUED" && <a href={href("queue")}>The queue</a>}
      {why.state === "QUEUED" && <a href={href(`jobs/${why.id}/layout`)}>Sizes with which it could start</a>}
      {why.state === "RUNNING" && <a href={href(`jobs/${why.id}/ranks`)}>Its ranks</a>}
    </p>
  );
}

function Incidents({ why }: { why: Schema<"Why"> }) {
  if (why.incidents.length === 0) return null;
  const newest = [...why.incidents].reverse().slice(0, SHOWN_INCIDENTS);
  const lost = Object.entries(why.steps_lost).filter(([, count]) => count > 0);
  return (
    <section class="card" aria-labelledby="why-incidents">
      <h2 id="why-incidents">{countText(why.incidents.length, "incident")}</h2>
      <p class="quiet">
        Recoveries took {durationText(why.recovery_s)}
        {why.mean_recovery_s !== null && `, ${durationText(why.mean_recovery_s)} on average`}.
        {lost.length > 0 &&
          ` Repeated: ${lost.map(([cause, count]) => `${countText(count, "step")} (${cause})`).join(", ")}.`}
      </p>
      <ul class="why-incidents">
        {newest.map((each) => (
          <li key={each.id}>
            <a href={href(`jobs/${why.id}/story`, { incident: String(each.number) })}>Incident {each.number}</a>{" "}
            {each.cause} <span class="quiet">{durationText(each.durations?.total)}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Time({ why }: { why: Schema<"Why"> }) {
  const shares = Object.entries(why.seconds ?? {})
    .filter(([, value]) => value > 0)
    .sort(([, one], [, two]) => two - one)
    .map(([label, value], index) => ({ label, value, text: durationText(value), series: (index % 8) + 1 }));
  if (shares.length === 0) return null;
  return (
    <section class="card" aria-labelledby="why-time">
      <h2 id="why-time">Time{why.goodput !== null && `: goodput ${percentText(why.goodput)}`}</h2>
      <ShareBar label="Time by class" shares={shares} />
      {why.stall_ratio !== null && (
        <p class="quiet">Training waited for snapshots {percentText(why.stall_ratio)} of the newest steps.</p>
      )}
    </section>
  );
}

/** How often jobs are interrupted, for how long, why, what it costs, and which nodes fail. */

import { useMemo } from "preact/hooks";
import { get } from "../../api/client";
import type { Schema } from "../../api/types";
import { present } from "../../api/values";
import { PageHeader } from "../../components/page-header";
import { ProjectField } from "../../components/project-select";
import { ResourceView } from "../../components/resource-view";
import { StackedBars } from "../../components/stacked-bars";
import { Stat } from "../../components/stat";
import { EmptyState } from "../../components/states";
import { WindowPicker } from "../../components/window-picker";
import { useChanges } from "../../state/changes";
import { useResource } from "../../state/resource";
import { query } from "../../state/router";
import { countText, numberText, percentText } from "../../text/numbers";
import { dayText, durationText, timeText } from "../../text/time";
import { windowOf, windowText } from "../../text/window";
import { Causes, wordsOf } from "./causes";
import { NewestIncidents } from "./incidents";
import { Nodes } from "./nodes";
import { Phases } from "./phases";
import { Rehearsals } from "./rehearsals";
import "./reliability.css";

const DAY_S = 86_400;

type Report = Schema<"Reliability">;

export default function ReliabilityPage() {
  const address = query.value.toString();
  const shown = useMemo(() => windowOf(query.value, "30d"), [address]);
  const project = query.value.get("project") ?? "";
  const values = { from: shown.from_s, ...present({ to: shown.to_s, project }) };
  const report = useResource(
    (signal) => get("/v1/reliability", { query: values, signal }),
    [shown.from_s, shown.to_s, project],
  );
  useChanges((change) => change.kind === "incident", report.refresh);
  return (
    <>
      <PageHeader title="Reliability" subtitle="Interruptions of jobs, their recovery, and what they cost" />
      <div class="filters">
        <WindowPicker shown={shown} />
        <ProjectField />
      </div>
      <ResourceView resource={report} label="Loading the report">
        {(data) => <ReportView report={data} />}
      </ResourceView>
      <Rehearsals />
    </>
  );
}

function ReportView({ report }: { report: Report }) {
  return (
    <>
      {report.is_partial && (
        <p class="notice warning">The window has more incidents or jobs than one report reads. Choose a shorter one.</p>
      )}
      <section class="card stats" aria-label="Summary">
        <Stat label="Goodput" note="time with devices in steps that count">
          {percentText(report.goodput)}
        </Stat>
        <Stat label="Failures" note={countText(report.incidents - report.failures, "planned change")}>
          {numberText(report.failures, 12)}
        </Stat>
        <Stat label="Mean time to recover" note={`95th percentile ${durationText(report.recovery?.p95_s)}`}>
          {durationText(report.recovery?.mean_s)}
        </Stat>
        <Stat label="Device-hours between failures" note={`${numberText(report.device_hours)} device-hours used`}>
          {report.failures === 0 ? "–" : numberText(report.device_hours / report.failures)}
        </Stat>
        <Stat label="Lost device-hours" note={`${countText(report.steps_lost, "step")} repeated`}>
          {numberText(report.lost_device_hours)}
        </Stat>
      </section>
      {report.incidents === 0 ? (
        <section class="card">
          <EmptyState title="No incident in this window">
            <p>
              No job was interrupted from {windowText(report.from_s, report.to_s)}. Choose a longer window, or rehearse
              failures with the commands below.
            </p>
          </EmptyState>
        </section>
      ) : (
        <>
          <section class="card">
            <h2>Incidents over time</h2>
            <StackedBars
              label="Incidents over time by cause; the table of causes has the sums"
              bars={report.bins.map((bin) => ({
                label: binText(bin.start_s, report.bin_s),
                values: inWords(bin.incidents),
              }))}
              text={(value) => numberText(value, 12)}
            />
          </section>
          <div class="reliability-pair">
            <Phases report={report} />
            <Causes report={report} />
          </div>
        </>
      )}
      <Nodes faults={report.nodes} />
      {report.newest.length > 0 && <NewestIncidents report={report} />}
    </>
  );
}

function inWords(counts: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(Object.entries(counts).map(([reason, count]) => [wordsOf(reason), count]));
}

function binText(start_s: number, size_s: number): string {
  return size_s >= DAY_S ? dayText(start_s) : timeText(start_s);
}

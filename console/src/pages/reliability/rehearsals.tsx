/** Verdicts of chaos rehearsals. `regroup chaos` runs a service of its own and records them here. */

import { get } from "../../api/client";
import type { Schema } from "../../api/types";
import { Badge } from "../../components/badge";
import { ResourceView } from "../../components/resource-view";
import { ShortTable } from "../../components/short-table";
import { useResource } from "../../state/resource";
import { countText, numberText } from "../../text/numbers";
import { durationText, timeText } from "../../text/time";
import { wordsOf } from "./causes";

type Recorded = Schema<"ChaosVerdict">;

const SHOWN = 100;
const COMMANDS: readonly (readonly [string, string])[] = [
  ["regroup chaos list", "shows the scenarios"],
  [
    "regroup chaos run --all --json rehearsal.json",
    "injects each fault once, compares with a run without faults, and records the verdicts",
  ],
  ["regroup chaos soak --minutes 20", "trains with a fault about every 20 s, and prints the goodput"],
  ["regroup chaos detectors", "disables one detector at a time, to prove that each is needed"],
];

export function Rehearsals() {
  const found = useResource((signal) => get("/v1/chaos/verdicts", { query: { limit: SHOWN }, signal }), []);
  return (
    <section class="card" aria-labelledby="rehearsals">
      <h2 id="rehearsals">Chaos rehearsals</h2>
      <ResourceView resource={found} label="Loading the rehearsals">
        {({ verdicts }) => (verdicts.length === 0 ? <NoVerdicts /> : <Verdicts verdicts={verdicts} />)}
      </ResourceView>
      <details open={found.data.value?.verdicts.length === 0}>
        <summary>Commands</summary>
        <dl class="reliability-commands">
          {COMMANDS.map(([command, effect]) => (
            <div key={command}>
              <dt>
                <code>{command}</code>
              </dt>
              <dd>{effect}</dd>
            </div>
          ))}
        </dl>
      </details>
    </section>
  );
}

function NoVerdicts() {
  return (
    <p>
      No verdict is recorded. A rehearsal injects faults into a local service that the command starts and stops, and
      checks the invariants after each recovery. The command records its verdicts at this server if it finds it: sign in
      with <code>regroup login</code>, or set <code>REGROUP_SERVER</code>.
    </p>
  );
}

function Verdicts({ verdicts }: { verdicts: readonly Recorded[] }) {
  const failed = verdicts.filter((each) => !each.verdict.passed).length;
  const newest = verdicts.length === SHOWN ? `The newest ${SHOWN} verdicts` : countText(verdicts.length, "verdict");
  return (
    <>
      <p class="quiet">
        {newest}, {failed === 0 ? "all passed" : `${failed} failed`}
      </p>
      <ShortTable
        label="Verdicts of rehearsals"
        rows={verdicts}
        rowKey={(row) => String(row.id)}
        columns={[
          { id: "time", label: "Recorded", cell: (row) => timeText(row.time_s) },
          { id: "scenario", label: "Scenario", cell: (row) => <Scenario row={row} /> },
          { id: "verdict", label: "Verdict", cell: (row) => <Verdict row={row} /> },
          { id: "causes", label: "Incidents", cell: (row) => incidentsText(row) },
          { id: "detect", label: "Detected", isNumber: true, cell: (row) => durationText(row.verdict.detect_s) },
          { id: "recover", label: "Recovered", isNumber: true, cell: (row) => durationText(row.verdict.recover_s) },
          { id: "steps", label: "Steps lost", isNumber: true, cell: (row) => numberText(row.verdict.steps_lost, 12) },
          { id: "version", label: "Version", cell: (row) => row.verdict.version },
          { id: "by", label: "By", cell: (row) => row.recorded_by },
        ]}
      />
    </>
  );
}

function Scenario({ row }: { row: Recorded }) {
  const { number, scenario, what, seed, disabled_detectors: disabled = [] } = row.verdict;
  return (
    <>
      {number} {scenario} <span class="quiet">seed {seed}</span>
      <br />
      <span class="quiet">{what}</span>
      {disabled.length > 0 && !what.includes("disabled") && <span class="quiet">; without {disabled.join(", ")}</span>}
    </>
  );
}

function Verdict({ row }: { row: Recorded }) {
  const { passed, problems = [] } = row.verdict;
  if (passed) return <Badge tone="good">passed</Badge>;
  return (
    <>
      <Badge tone="bad">failed</Badge>
      {problems.length > 0 && (
        <details>
          <summary>{countText(problems.length, "violation")}</summary>
          <ul>
            {problems.map((problem) => (
              <li key={problem}>{problem}</li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}

function incidentsText(row: Recorded): string {
  const { incidents = [], recovery_actions: actions = [] } = row.verdict;
  const texts = incidents.map((cause, index) => `${wordsOf(cause)} → ${wordsOf(actions[index] ?? "no action")}`);
  const counts = new Map<string, number>();
  for (const text of texts) counts.set(text, (counts.get(text) ?? 0) + 1);
  return [...counts].map(([text, count]) => (count === 1 ? text : `${text} (${count} times)`)).join(", ") || "none";
}

/** One incident: what happened, how long each phase took, what it cost, and what the evidence shows. */

import { useEffect, useRef, useState } from "preact/hooks";
import { fetchApi, get, target } from "../../../api/client";
import { toProblem } from "../../../api/problem";
import { CommandBlock } from "../../../components/command-block";
import { ResourceView } from "../../../components/resource-view";
import { Stat } from "../../../components/stat";
import { useResource } from "../../../state/resource";
import { commandText, curlText } from "../../../text/commands";
import { countText } from "../../../text/numbers";
import { durationText, timeText } from "../../../text/time";
import { type Incident, PHASES } from "./entries";
import { FindingsView } from "./findings";

const EVIDENCE = "/v1/jobs/{job}/incidents/{number}/evidence";

export function IncidentPanel({ job, incident, onClose }: { job: string; incident: Incident; onClose: () => void }) {
  const heading = useRef<HTMLHeadingElement>(null);
  const path = { job, number: incident.number };
  const detail = useResource(
    (signal) => get("/v1/jobs/{job}/incidents/{number}", { path, signal }),
    [job, incident.number, incident.until_s, incident.has_evidence],
  );
  useEffect(() => heading.current?.focus({ preventScroll: true }), []);
  return (
    <section class="card story-panel" aria-label={`Incident ${incident.number}`}>
      <header class="row">
        <h2 ref={heading} tabIndex={-1}>
          Incident {incident.number}: {incident.cause}
        </h2>
        <div class="row">
          <Download job={job} number={incident.number} />
          <button type="button" onClick={onClose}>
            Close
          </button>
        </div>
      </header>
      <p>{incident.summary}</p>
      <div class="story-facts">
        <Facts incident={incident} />
        <Phases incident={incident} />
      </div>
      {incident.remedy && (
        <p class="notice">
          <b>What to do.</b> {incident.remedy}
        </p>
      )}
      <ResourceView resource={detail} label="Loading the evidence">
        {(found) => <FindingsView job={job} number={incident.number} findings={found.findings} />}
      </ResourceView>
      <CommandBlock
        commands={[
          commandText("regroup", "story", job, "--incident", String(incident.number)),
          commandText("regroup", "evidence", job, String(incident.number)),
        ]}
        curl={curlText({ method: "get", path: EVIDENCE, values: path })}
      />
    </section>
  );
}

function Facts({ incident }: { incident: Incident }) {
  const saved = incident.without_memory;
  return (
    <div class="stats">
      <Stat label="Until the next step">{durationText(incident.durations.total)}</Stat>
      <Stat label="Steps lost">{incident.steps_lost ?? "–"}</Stat>
      {incident.cost && (
        <Stat label="Cost" note={incident.cost.basis}>
          {`${durationText(incident.cost.device_s)} of devices`}
        </Stat>
      )}
      {incident.restored_from && (
        <Stat label="Continued from" note={`step ${incident.restored_step}`}>
          {incident.restored_from === "nothing" ? "the beginning" : incident.restored_from}
        </Stat>
      )}
      {saved && (
        <Stat label="Without memory and mirrors" note={saved.basis}>
          {saved.more_s === null
            ? `${countText(saved.more_steps, "more step")}`
            : `${countText(saved.more_steps, "more step")}, ${durationText(saved.more_s)}`}
        </Stat>
      )}
    </div>
  );
}

function Phases({ incident }: { incident: Incident }) {
  return (
    <table>
      <thead>
        <tr>
          <th scope="col">Phase</th>
          <th scope="col" class="number">
            Took
          </th>
          <th scope="col">Ended</th>
        </tr>
      </thead>
      <tbody>
        {PHASES.map((phase, index) => (
          <tr key={phase.id}>
            <td>
              <i class={`dot fill-${index + 1}`} aria-hidden="true" />
              {phase.label}
            </td>
            <td class="number">{durationText(incident.durations[phase.id])}</td>
            <td>{timeText(incident.times[phase.to])}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Download({ job, number }: { job: string; number: number }) {
  const [message, setMessage] = useState("");
  const download = async () => {
    setMessage("Downloading…");
    try {
      const answer = await fetchApi(target(EVIDENCE, { job, number }));
      const name = /filename="([^"]+)"/.exec(answer.headers.get("Content-Disposition") ?? "")?.[1];
      const link = document.createElement("a");
      link.href = URL.createObjectURL(await answer.blob());
      link.download = name ?? `incident-${number}.zip`;
      link.click();
      URL.revokeObjectURL(link.href);
      setMessage("");
    } catch (error) {
      setMessage(toProblem(error).message);
    }
  };
  return (
    <>
      <span role="status">{message}</span>
      <button type="button" class="primary" onClick={() => void download()}>
        Download the evidence
      </button>
    </>
  );
}

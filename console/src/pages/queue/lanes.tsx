/** A lane for each project: guaranteed, borrowed and requested devices on one scale, with the same as numbers. */

import type { Schema } from "../../api/types";
import { EmptyState } from "../../components/states";
import { setQuery } from "../../state/router";
import { countText, numberText } from "../../text/numbers";
import { type Lane, laneOf, scaleOf } from "./shares";

export function Lanes(props: {
  projects: readonly Schema<"Project">[];
  queued: readonly Schema<"ProjectQueue">[];
  selected: string | undefined;
}) {
  const lanes = props.projects.map((project) =>
    laneOf(
      project,
      props.queued.find((each) => each.project === project.name),
    ),
  );
  const scale = scaleOf(lanes);
  if (lanes.length === 0) {
    return (
      <EmptyState title="No project has a quota or a job">
        <p>Jobs of a project without a quota share what is free. Set a quota with the field above.</p>
      </EmptyState>
    );
  }
  return (
    <section class="card queue-lanes" aria-label="Projects">
      <p class="queue-key quiet">
        <span>
          <i class="dot fill-2" aria-hidden="true" /> in use, guaranteed
        </span>
        <span>
          <i class="dot queue-borrowed" aria-hidden="true" /> in use, borrowed
        </span>
        <span>
          <i class="dot queue-wanted" aria-hidden="true" /> requested by waiting jobs
        </span>
        <span>
          <b>│</b> guarantee
        </span>
        <span>
          <b>┃</b> limit
        </span>
      </p>
      <div class="queue-scroll">
        <table>
          <thead>
            <tr>
              <th scope="col">Project</th>
              <th scope="col">Devices</th>
              <th scope="col" class="number">
                In use
              </th>
              <th scope="col" class="number">
                Guarantee
              </th>
              <th scope="col" class="number">
                Borrowed
              </th>
              <th scope="col" class="number">
                Limit
              </th>
              <th scope="col" class="number">
                Waiting
              </th>
              <th scope="col" class="number">
                Weight
              </th>
              <th scope="col">Budget</th>
              <th scope="col">
                <span class="visually-hidden">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {lanes.map((lane) => (
              <Row key={lane.name} lane={lane} scale={scale} isSelected={lane.name === props.selected} />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Row({ lane, scale, isSelected }: { lane: Lane; scale: number; isSelected: boolean }) {
  return (
    <tr aria-current={isSelected ? "true" : undefined}>
      <th scope="row">
        <button
          type="button"
          class="link"
          aria-pressed={isSelected}
          title={`Show only waiting jobs of ${lane.name}`}
          onClick={() => setQuery({ project: isSelected ? undefined : lane.name })}
        >
          {lane.name}
        </button>
      </th>
      <td>
        <Bar lane={lane} scale={scale} />
      </td>
      <td class="number">{numberText(lane.own + lane.borrowed)}</td>
      <td class="number">{numberText(lane.guaranteed)}</td>
      <td class="number">{numberText(lane.borrowed)}</td>
      <td class="number">{lane.limit === null ? "none" : numberText(lane.limit)}</td>
      <td class="number">
        {lane.waitingJobs === 0 ? "0" : `${lane.waiting} in ${countText(lane.waitingJobs, "job")}`}
      </td>
      <td class="number">{numberText(lane.weight)}</td>
      <td>{budgetText(lane)}</td>
      <td class="number">
        <button type="button" aria-label={`Edit ${lane.name}`} onClick={() => setQuery({ edit: lane.name })}>
          Edit
        </button>
      </td>
    </tr>
  );
}

function Bar({ lane, scale }: { lane: Lane; scale: number }) {
  const x = (devices: number) => (100 * devices) / scale;
  const used = lane.own + lane.borrowed;
  const parts = [
    `${used} in use`,
    `${lane.guaranteed} guaranteed`,
    `${lane.borrowed} borrowed`,
    `${lane.waiting} requested`,
    lane.limit === null ? "no limit" : `limit ${lane.limit}`,
  ];
  return (
    <svg class="queue-bar" viewBox="0 0 100 12" preserveAspectRatio="none" role="img" aria-label={parts.join(", ")}>
      <rect class="queue-track" width="100" height="12" />
      <rect class="fill-2" y="2" width={x(lane.own)} height="8" />
      <rect class="queue-borrowed" x={x(lane.own)} y="2" width={x(lane.borrowed)} height="8" />
      <rect class="queue-wanted" x={x(used)} y="3.5" width={x(lane.waiting)} height="5" />
      {lane.guaranteed > 0 && <line class="queue-guarantee" x1={x(lane.guaranteed)} x2={x(lane.guaranteed)} y2="12" />}
      {lane.limit !== null && <line class="queue-limit" x1={x(lane.limit)} x2={x(lane.limit)} y2="12" />}
    </svg>
  );
}

function budgetText(lane: Lane): string {
  if (lane.budget === null) return "none";
  const used = numberText(lane.budgetUsed ?? 0, 3);
  return `${used} of ${numberText(lane.budget)} ${lane.budgetUnit}`;
}

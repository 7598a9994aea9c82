/** Bytes that ranks send along each axis in a step, and the time that they take at the present placement. */

import type { Schema } from "../../../api/types";
import { ScrollBox } from "../../../components/scroll-box";
import { bytesText } from "../../../text/numbers";
import { durationText } from "../../../text/time";
import { AXIS_NAMES, type Axis } from "./mesh";

export function Axes(props: { sizes: Schema<"JobSizes">; choice: Schema<"Choice"> | null | undefined }) {
  const { sizes, choice } = props;
  const current = sizes.sizes.find((each) => JSON.stringify(each.layout) === JSON.stringify(sizes.current));
  const placed = new Map(choice?.axes.map((axis) => [axis.name, axis]));
  const axes = choice?.axes.length ? choice.axes : (current?.axes ?? []);
  return (
    <section class="card" aria-labelledby="layout-axes-title">
      <h2 id="layout-axes-title">Traffic of a step</h2>
      {axes.length === 0 ? (
        <p class="quiet">{emptyText(sizes)}</p>
      ) : (
        <ScrollBox label="Traffic of a step">
          <table>
            <thead>
              <tr>
                <th scope="col">Axis</th>
                <th scope="col" class="number">
                  Group
                </th>
                <th scope="col" class="number">
                  Each rank sends
                </th>
                <th scope="col">Crosses</th>
                <th scope="col" class="number">
                  Time
                </th>
              </tr>
            </thead>
            <tbody>
              {axes.map((axis) => (
                <tr key={axis.name}>
                  <td>
                    {axis.name} <span class="quiet">{AXIS_NAMES[axis.name as Axis]}</span>
                  </td>
                  <td class="number">{axis.degree}</td>
                  <td class="number">{bytesText(axis.wire_bytes)}</td>
                  <td>{crossText(placed.get(axis.name)?.leaves)}</td>
                  <td class="number">{durationText(placed.get(axis.name)?.seconds)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </ScrollBox>
      )}
      {choice && choice.communication_s !== null && (
        <p class="quiet">
          Together {durationText(choice.communication_s)} in a step, if nothing overlaps.{" "}
          {choice.probe_job_id
            ? `The probe ${choice.probe_job_id} measured the links.`
            : "The links are estimates from a table: run a probe to measure them."}
        </p>
      )}
    </section>
  );
}

function emptyText(sizes: Schema<"JobSizes">): string {
  if (sizes.current === null) return "The job has had no ranks.";
  return sizes.why_not
    ? "The program controls its communication, so its traffic is unknown."
    : "The job has one rank, which sends nothing.";
}

function crossText(level: string | undefined): string {
  if (level === undefined) return "–";
  return level === "device" ? "stays on its node" : `between ${level.replaceAll("_", " ")}s`;
}

/** Bandwidth and latency between the levels: measured by a probe, and of the hardware table. */

import type { Schema } from "../../api/types";
import { bytesText } from "../../text/numbers";
import { agoText, durationText } from "../../text/time";

export function LinkTable({ levels }: { levels: readonly Schema<"LevelInfo">[] }) {
  const isMeasured = levels.some((level) => level.measured_s !== null);
  return (
    <section class="card" aria-label="Links">
      <h2>Links out of a domain, per device</h2>
      <div class="cluster-scroll">
        <table>
          <thead>
            <tr>
              <th scope="col">Level</th>
              <th scope="col" class="number">
                Measured
              </th>
              <th scope="col" class="number">
                Nominal
              </th>
              <th scope="col" class="number">
                Of nominal
              </th>
              <th scope="col" class="number">
                Latency
              </th>
              <th scope="col">Probe</th>
            </tr>
          </thead>
          <tbody>
            {levels.map((level) => (
              <tr key={level.level}>
                <th scope="row">{level.level.replace("gpu_", "GPU ")}</th>
                <td class="number">{level.measured_s === null ? "–" : `${bytesText(level.link.bytes_per_s)}/s`}</td>
                <td class="number">{bytesText(level.nominal.bytes_per_s)}/s</td>
                <td class="number">{level.measured_s === null ? "–" : shareText(level)}</td>
                <td class="number">{durationText(level.link.latency_s)}</td>
                <td>{level.measured_s === null ? "not measured" : agoText(level.measured_s)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {!isMeasured && (
        <p class="quiet">
          Placement uses the nominal values. Measure this cluster with <code>regroup probe run</code>.
        </p>
      )}
    </section>
  );
}

function shareText(level: Schema<"LevelInfo">): string {
  return `${Math.round((100 * level.link.bytes_per_s) / level.nominal.bytes_per_s)} %`;
}

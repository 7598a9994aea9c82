/** Incidents of the last day, the newest first. Each opens in the story of its job. */

import type { Schema } from "../../api/types";
import { href } from "../../state/router";
import { countText, numberText } from "../../text/numbers";
import { agoText, durationText, timeText } from "../../text/time";

export function IncidentTable({ incidents, total }: { incidents: readonly Schema<"RecentIncident">[]; total: number }) {
  return (
    <section class="card" aria-labelledby="overview-incidents">
      <h2 id="overview-incidents">Incidents of the last 24 hours</h2>
      {incidents.length === 0 ? (
        <p class="quiet">There was none.</p>
      ) : (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a wide table scrolls with the keyboard
        <section class="overview-incidents" tabIndex={0} aria-label="Incidents of the last 24 hours">
          <table>
            <thead>
              <tr>
                <th scope="col">Seen</th>
                <th scope="col">Job</th>
                <th scope="col">Cause</th>
                <th scope="col">Recovery</th>
                <th scope="col" class="number">
                  Total time
                </th>
                <th scope="col" class="number">
                  Lost steps
                </th>
              </tr>
            </thead>
            <tbody>
              {incidents.map((each) => (
                <tr key={`${each.job} ${each.number}`}>
                  <td title={timeText(each.seen_s)}>{agoText(each.seen_s)}</td>
                  <td>
                    <a href={href(`jobs/${each.job}/story`, { incident: String(each.number) })}>
                      {each.job_name} #{each.number}
                    </a>
                  </td>
                  <td>{each.cause}</td>
                  <td>{each.recovery_action ?? "–"}</td>
                  <td class="number">{each.total_s === null ? "not over" : durationText(each.total_s)}</td>
                  <td class="number">{numberText(each.steps_lost)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
      {total > incidents.length && (
        <p class="quiet">
          The newest {incidents.length} of {countText(total, "incident")}.
        </p>
      )}
    </section>
  );
}

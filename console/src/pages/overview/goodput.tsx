/** Goodput of the last seven days, one bar for each 24 hours. */

import type { Schema } from "../../api/types";
import { href } from "../../state/router";
import { compactText, percentText } from "../../text/numbers";

const HEIGHT = 64;

export function GoodputCard({ days }: { days: readonly Schema<"GoodputDay">[] }) {
  const known = days.filter((day) => day.goodput !== null);
  const hours = known.reduce((sum, day) => sum + day.device_hours, 0);
  const mean =
    hours > 0 ? known.reduce((sum, day) => sum + (day.goodput ?? 0) * day.device_hours, 0) / hours : undefined;
  return (
    <section class="card">
      <h2>
        <a href={href("reliability")}>Goodput of the week</a>
      </h2>
      {mean === undefined ? (
        <p class="quiet">No job with devices has reported its goodput in this week.</p>
      ) : (
        <>
          <p class="quiet">
            <b class="overview-goodput">{percentText(mean)}</b> of {compactText(hours)} device-hours committed steps
          </p>
          <ol class="overview-days">
            {days.map((day) => (
              <li
                key={day.start_s}
                title={`${percentText(day.goodput)} of ${compactText(day.device_hours)} device-hours`}
              >
                <svg viewBox={`0 0 10 ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
                  <rect width="10" height={HEIGHT} class="track" />
                  <rect
                    y={HEIGHT * (1 - (day.goodput ?? 0))}
                    width="10"
                    height={HEIGHT * (day.goodput ?? 0)}
                    class="fill-2"
                  />
                </svg>
                <b>{day.goodput === null ? "–" : percentText(Number(day.goodput.toFixed(2)))}</b>
                <span class="quiet">{weekday(day.end_s)}</span>
              </li>
            ))}
          </ol>
        </>
      )}
    </section>
  );
}

function weekday(time_s: number): string {
  return new Date(time_s * 1000).toLocaleDateString("en-GB", { weekday: "short" });
}

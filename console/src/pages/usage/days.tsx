/** Device-hours of each day of the window, by the first group. */

import { get } from "../../api/client";
import type { Schema } from "../../api/types";
import { ResourceView } from "../../components/resource-view";
import { type Bar, StackedBars } from "../../components/stacked-bars";
import { useResource } from "../../state/resource";
import { dayText } from "../../text/time";
import { partsOf } from "../../text/window";
import { GROUPS, groupsOf, groupText, hoursText, type UsageQuery } from "./groups";

const AT_ONCE = 6;

export function Days({ request, window }: { request: UsageQuery; window: { from_s: number; to_s: number } }) {
  const [group] = groupsOf(request.group_by);
  const key = JSON.stringify([group, request.from, request.to, request.project]);
  const days = useResource((signal) => loadDays({ ...request, group_by: group }, window, signal), [key]);
  const label = GROUPS.find(([each]) => each === group)?.[1].toLowerCase();
  return (
    <>
      <h2>Device-hours over time, by {label}</h2>
      <ResourceView resource={days} label="Loading the days">
        {(bars) => (
          <StackedBars
            label={`Device-hours over time by ${label}; the table below has the sums`}
            bars={bars}
            text={(value) => `${hoursText(value)} h`}
          />
        )}
      </ResourceView>
    </>
  );
}

async function loadDays(
  request: UsageQuery,
  window: { from_s: number; to_s: number },
  signal: AbortSignal,
): Promise<Bar[]> {
  const edges = partsOf(window.from_s, window.to_s);
  const starts = edges.slice(0, -1);
  const bars: Bar[] = [];
  for (let first = 0; first < starts.length; first += AT_ONCE) {
    const some = starts.slice(first, first + AT_ONCE).map(async (from, index) => {
      const to = edges[first + index + 1] as number;
      const { rows } = await get("/v1/usage", { query: { ...request, from, to }, signal });
      return { label: dayText(from), values: valuesOf(rows, groupsOf(request.group_by)[0]) };
    });
    bars.push(...(await Promise.all(some)));
  }
  return bars;
}

function valuesOf(rows: readonly Schema<"UsageRow">[], group: ReturnType<typeof groupsOf>[0]): Record<string, number> {
  const values: Record<string, number> = {};
  for (const row of rows) {
    const name = groupText(row, group);
    values[name] = (values[name] ?? 0) + row.device_hours;
  }
  return values;
}

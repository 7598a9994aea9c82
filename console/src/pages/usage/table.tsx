/** The rows of the report, with their sums. */

import type { Schema } from "../../api/types";
import type { Column } from "../../components/data-table";
import { ShortTable } from "../../components/short-table";
import { EmptyState } from "../../components/states";
import { href } from "../../state/router";
import { percentText } from "../../text/numbers";
import { windowText } from "../../text/window";
import { GROUPS, type Group, groupText, hoursText, moneyText } from "./groups";

type Row = Schema<"UsageRow">;
type Report = Schema<"UsagePage"> & { isPartial: boolean };

export function UsageTable({ report, groups }: { report: Report; groups: readonly Group[] }) {
  const { rows } = report;
  const title = windowText(report.from_s, report.to_s);
  if (rows.length === 0) {
    return (
      <EmptyState title="No device was used in this window">
        <p>Choose another window or project, or submit a job.</p>
        <a class="button" href={href("submit")}>
          Submit a job
        </a>
      </EmptyState>
    );
  }
  const total = sumOf(rows);
  const columns: Column<Row>[] = [
    ...groups.map((group) => ({
      id: group,
      label: GROUPS.find(([each]) => each === group)?.[1] ?? group,
      cell: (row: Row) => <GroupCell row={row} group={group} />,
    })),
    { id: "hours", label: "Device-hours", isNumber: true, cell: (row) => hoursText(row.device_hours) },
    {
      id: "share",
      label: "Share",
      isNumber: true,
      cell: (row) => percentText(total.hours === 0 ? null : row.device_hours / total.hours),
    },
    { id: "cost", label: "Cost", isNumber: true, cell: (row) => moneyText(row.cost, row.currency) },
    { id: "unpriced", label: "Without price", cell: unpricedText },
  ];
  const empty = groups.slice(1).map(() => "");
  const cost = moneyText(total.cost, total.currency);
  const ordered = [...rows].sort((one, other) => other.device_hours - one.device_hours);
  return (
    <>
      <h2>{title}</h2>
      <ShortTable
        label="Use of devices by group"
        columns={columns}
        rows={ordered}
        rowKey={(row) => groups.map((group) => (group === "job" ? row.job : groupText(row, group))).join(" ")}
        footer={[
          "Total",
          ...empty,
          hoursText(total.hours),
          "",
          cost,
          total.unpriced > 0 ? `${hoursText(total.unpriced)} h` : "",
        ]}
      />
      {report.isPartial && (
        <p class="notice warning">These are the first {rows.length} groups. The CSV file has all of them.</p>
      )}
      {total.currency === null && (
        <p class="quiet">The server has no price table, so nothing has a cost. An operator sets REGROUP_PRICES.</p>
      )}
    </>
  );
}

function GroupCell({ row, group }: { row: Row; group: Group }) {
  const text = groupText(row, group);
  return group === "job" && row.job ? <a href={href(`jobs/${row.job}`)}>{text}</a> : <span>{text}</span>;
}

function unpricedText(row: Row): string {
  if (row.currency === null || row.unpriced_device_hours === 0) return "";
  return `${hoursText(row.unpriced_device_hours)} h on ${row.unpriced.join(", ")}`;
}

function sumOf(rows: readonly Row[]) {
  const priced = rows.filter((row) => row.cost !== null);
  const currency = rows[0]?.currency ?? null;
  return {
    hours: rows.reduce((sum, row) => sum + row.device_hours, 0),
    cost: priced.length === 0 ? null : priced.reduce((sum, row) => sum + (row.cost ?? 0), 0),
    unpriced: currency === null ? 0 : rows.reduce((sum, row) => sum + row.unpriced_device_hours, 0),
    currency,
  };
}

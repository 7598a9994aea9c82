/** All ranks as a table that can be sorted. */

import { useMemo } from "preact/hooks";
import { Badge } from "../../../components/badge";
import { type Column, DataTable } from "../../../components/data-table";
import { query, setQuery } from "../../../state/router";
import { numberText } from "../../../text/numbers";
import { durationText } from "../../../text/time";
import { type RankView, type SortKey, STATES, sortRanks } from "./rank-state";

const SORTS: Record<SortKey, string> = {
  rank: "Rank",
  state: "State, slow ranks first",
  work: "Work, longest first",
  wait: "Wait, longest first",
  factor: "Factor, largest first",
  node: "Node",
};

export function RankTable(props: {
  ranks: readonly RankView[];
  generation: number;
  selected: ReadonlySet<number>;
  onSelect: (ranks: readonly number[]) => void;
}) {
  const chosen = query.value.get("sort") ?? "rank";
  const key: SortKey = chosen in SORTS ? (chosen as SortKey) : "rank";
  const rows = useMemo(() => sortRanks(props.ranks, key), [props.ranks, key]);
  const toggle = (rank: number) => {
    const next = new Set(props.selected);
    if (!next.delete(rank)) next.add(rank);
    props.onSelect([...next]);
  };
  const columns: Column<RankView>[] = [
    {
      id: "rank",
      label: "Rank",
      width: 4.5,
      cell: (each) => (
        <label class="check">
          <input type="checkbox" checked={props.selected.has(each.rank)} onChange={() => toggle(each.rank)} />
          {each.rank}
        </label>
      ),
    },
    {
      id: "state",
      label: "State",
      width: 6.2,
      cell: (each) => <Badge tone={STATES[each.state].tone}>{STATES[each.state].label}</Badge>,
    },
    { id: "node", label: "Node", width: 6, cell: (each) => each.node },
    { id: "device", label: "Device", width: 4.6, cell: (each) => each.device || "–" },
    { id: "phase", label: "Phase", width: 6.2, cell: (each) => each.phase ?? "–" },
    { id: "step", label: "Step", width: 4.2, isNumber: true, cell: (each) => numberText(each.step, 12) },
    { id: "work", label: "Work", width: 5.4, isNumber: true, cell: (each) => durationText(each.work_s) },
    { id: "wait", label: "Wait", width: 5.2, isNumber: true, cell: (each) => durationText(each.wait_s) },
    {
      id: "factor",
      label: "× median",
      width: 5.8,
      isNumber: true,
      cell: (each) => numberText(each.factor === null ? null : Number(each.factor.toFixed(2))),
    },
    { id: "since", label: "In phase", width: 5.4, isNumber: true, cell: (each) => durationText(each.stalled_s) },
  ];
  return (
    <section class="ranks-table" aria-labelledby="ranks-table">
      <div class="row">
        <h2 id="ranks-table">Generation {props.generation}</h2>
        <label class="ranks-sort">
          Sort by
          <select value={key} onChange={(event) => setQuery({ sort: event.currentTarget.value })}>
            {Object.entries(SORTS).map(([id, label]) => (
              <option key={id} value={id}>
                {label}
              </option>
            ))}
          </select>
        </label>
      </div>
      <DataTable label="Table of ranks" columns={columns} rows={rows} rowKey={(each) => `${each.rank}`} />
    </section>
  );
}

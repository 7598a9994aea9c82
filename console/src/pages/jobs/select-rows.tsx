/** The selection of rows: with the mouse, with shift for a range, and with the keyboard. */

import { useMemo, useState } from "preact/hooks";
import type { Column } from "../../components/data-table";
import type { Row } from "./rows";

export interface Selection {
  ids: ReadonlySet<string>;
  /** The selected jobs that are in the list. */
  jobs: readonly Row[];
  isAll: boolean;
  toggle: (id: string, isRange?: boolean) => void;
  toggleAll: () => void;
  clear: () => void;
}

/** Keep a selection among the rows. */
export function useSelection(rows: readonly Row[]): Selection {
  const [ids, setIds] = useState<ReadonlySet<string>>(new Set());
  const [last, setLast] = useState<string>();
  return useMemo(() => {
    const isAll = rows.length > 0 && rows.every((row) => ids.has(row.id));
    return {
      ids,
      jobs: ids.size === 0 ? [] : rows.filter((row) => ids.has(row.id)),
      isAll,
      toggle: (id, isRange = false) => {
        const next = new Set(ids);
        const isSelected = !ids.has(id);
        for (const each of isRange ? between(rows, last ?? id, id) : [id]) {
          if (isSelected) next.add(each);
          else next.delete(each);
        }
        setIds(next);
        setLast(id);
      },
      toggleAll: () => setIds(isAll ? new Set() : new Set(rows.map((row) => row.id))),
      clear: () => setIds(new Set()),
    };
  }, [rows, ids, last]);
}

/** Return the column with a box for each row. */
export function selectColumn(selection: Selection): Column<Row> {
  return {
    id: "select",
    label: "Select",
    width: 2.2,
    head: () => (
      <input
        type="checkbox"
        aria-label="Select all jobs that are loaded"
        checked={selection.isAll}
        onClick={selection.toggleAll}
      />
    ),
    cell: (job) => (
      <input
        type="checkbox"
        aria-label={`Select ${job.name}`}
        checked={selection.ids.has(job.id)}
        onClick={(event) => {
          event.stopPropagation();
          selection.toggle(job.id, event.shiftKey);
        }}
      />
    ),
  };
}

function between(rows: readonly Row[], first: string, last: string): string[] {
  const ids = rows.map((row) => row.id);
  const ends = [ids.indexOf(first), ids.indexOf(last)].sort((a, b) => a - b);
  return ends[0] === -1 ? [last] : ids.slice(ends[0], (ends[1] as number) + 1);
}

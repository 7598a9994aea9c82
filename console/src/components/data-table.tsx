/** A table of up to 100,000 rows: only those in view are in the document. */

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

export interface Column<T> {
  id: string;
  label: string;
  cell: (row: T) => ComponentChildren;
  /** Head of the column in place of its label, for example a box that selects all rows. */
  head?: () => ComponentChildren;
  isNumber?: boolean;
  /** Width in `rem`; a column without one takes what is left. */
  width?: number;
  /** Left out on a narrow screen. */
  isExtra?: boolean;
}

const ROW_HEIGHT_PX = 34;
const MARGIN_ROWS = 12;

/**
 * Show rows. The height of the table is that of its container, which scrolls.
 *
 * `onNearEnd` is called when the reader comes near the last row, to load more. `total` is the number of all rows, if
 * more exist than `rows` has.
 */
export function DataTable<T>(props: {
  label: string;
  columns: readonly Column<T>[];
  rows: readonly T[];
  rowKey: (row: T) => string;
  /** Key of the row that has the focus of the keyboard. */
  current?: string | undefined;
  onNearEnd?: () => void;
  total?: number;
  isSelected?: (row: T) => boolean;
  onRowClick?: (row: T) => void;
  /** Called with the key of the row that arrow keys choose. Without it, the table itself remembers the row. */
  onCurrent?: (key: string) => void;
  /** Called with the rows that are in the document, whenever they change. */
  onView?: (rows: readonly T[]) => void;
}) {
  const { columns, rows, rowKey, onNearEnd, onView } = props;
  const [chosen, setChosen] = useState<string>();
  const current = props.current ?? chosen;
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 800 });
  const measure = () => {
    const element = box.current;
    if (element !== null) setView({ top: element.scrollTop, height: element.clientHeight });
  };
  useLayoutEffect(measure, []);
  useEffect(() => {
    const observer = new ResizeObserver(measure);
    if (box.current) observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const first = Math.max(0, Math.floor(view.top / ROW_HEIGHT_PX) - MARGIN_ROWS);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / ROW_HEIGHT_PX) + MARGIN_ROWS);
  useEffect(() => {
    if (last >= rows.length) onNearEnd?.();
  }, [last, rows.length]);
  useEffect(() => onView?.(rows.slice(first, last)), [first, last, rows]);
  // Before the next key arrives: Enter opens the chosen row, which must be in the page by then.
  useLayoutEffect(() => {
    const index = current === undefined ? -1 : rows.findIndex((row) => rowKey(row) === current);
    const element = box.current;
    if (index < 0 || element === null) return;
    const top = index * ROW_HEIGHT_PX;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + 2 * ROW_HEIGHT_PX > element.scrollTop + element.clientHeight) {
      element.scrollTop = top + 2 * ROW_HEIGHT_PX - element.clientHeight;
    } else return;
    measure();
  }, [current, rows, rowKey]);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.target !== box.current || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const at = rows.findIndex((row) => rowKey(row) === current);
    const next = rows[nextRow(event.key, at, rows.length, Math.floor(view.height / ROW_HEIGHT_PX) - 1)];
    if (next !== undefined) (props.onCurrent ?? setChosen)(rowKey(next));
    else if (event.key !== "Enter" || box.current === null || !openRow(box.current)) return;
    event.preventDefault();
  };
  return (
    <section
      class="table-box"
      ref={box}
      onScroll={measure}
      onKeyDown={onKeyDown}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: the rows scroll with the keyboard
      tabIndex={0}
      aria-label={props.label}
    >
      <table aria-rowcount={(props.total ?? rows.length) + 1}>
        <colgroup>
          {columns.map((column) => (
            <col
              key={column.id}
              class={column.isExtra ? "extra" : ""}
              style={column.width === undefined ? {} : { width: `${column.width}rem` }}
            />
          ))}
        </colgroup>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.id} scope="col" class={cellClass(column)}>
                {column.head ? column.head() : column.label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          <Spacer rows={first} columns={columns.length} />
          {rows.slice(first, last).map((row, index) => (
            <tr
              key={rowKey(row)}
              aria-rowindex={first + index + 2}
              aria-current={rowKey(row) === current ? "true" : undefined}
              class={props.isSelected?.(row) ? "selected" : ""}
              onClick={() => props.onRowClick?.(row)}
              style={{ height: `${ROW_HEIGHT_PX}px` }}
            >
              {columns.map((column) => (
                <td key={column.id} class={cellClass(column)}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
          <Spacer rows={rows.length - last} columns={columns.length} />
        </tbody>
      </table>
    </section>
  );
}

/** Return the number of the row that a key chooses; -1 for other keys. */
export function nextRow(key: string, at: number, count: number, page: number): number {
  const last = count - 1;
  const steps: Record<string, number> = {
    ArrowDown: at + 1,
    ArrowUp: at < 0 ? last : at - 1,
    PageDown: at + page,
    PageUp: at - page,
    Home: 0,
    End: last,
  };
  const next = steps[key];
  return next === undefined ? -1 : Math.max(0, Math.min(last, next));
}

/** Follow the first link of the chosen row, or press its first button; return whether it has one. */
function openRow(box: HTMLElement): boolean {
  const found = box.querySelector<HTMLElement>("tr[aria-current] :is(a[href], button)");
  found?.click();
  return found !== null;
}

function cellClass<T>(column: Column<T>): string {
  return `${column.isNumber ? "number" : ""} ${column.isExtra ? "extra" : ""}`.trim();
}

function Spacer({ rows, columns }: { rows: number; columns: number }) {
  if (rows <= 0) return null;
  return (
    <tr>
      <td colSpan={columns} class="spacer" style={{ height: `${rows * ROW_HEIGHT_PX}px` }} />
    </tr>
  );
}

/** A table of some hundred rows at most, all of them in the document. */

import type { ComponentChildren } from "preact";
import type { Column } from "./data-table";

/** Show rows. `footer` are the cells of a last row, for example sums. */
export function ShortTable<T>(props: {
  label: string;
  columns: readonly Column<T>[];
  rows: readonly T[];
  rowKey: (row: T) => string;
  footer?: readonly ComponentChildren[];
}) {
  const { columns, rows, rowKey, footer } = props;
  const classOf = (column: Column<T> | undefined) => (column?.isNumber ? "number" : "");
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a wide table scrolls with the keyboard
    <section class="short-table" tabIndex={0} aria-label={props.label}>
      <table>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column.id} scope="col" class={classOf(column)}>
                {column.label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={rowKey(row)}>
              {columns.map((column) => (
                <td key={column.id} class={classOf(column)}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
        {footer && (
          <tfoot>
            <tr>
              {footer.map((cell, index) => (
                <td key={columns[index]?.id} class={classOf(columns[index])}>
                  {cell}
                </td>
              ))}
            </tr>
          </tfoot>
        )}
      </table>
    </section>
  );
}

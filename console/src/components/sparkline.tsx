/** A small line of a metric, with its first, last and smallest value as text. */

import { linePath } from "../text/line-path";
import { numberText } from "../text/numbers";

const WIDTH = 96;
const HEIGHT = 22;
const MARGIN = 2;

export function Sparkline(props: {
  /** Name of the metric, for example `loss of gpt`. */
  label: string;
  /** Values at equal distances; null where there is none. */
  values: readonly (number | null)[];
  /** Value as text, with its unit. */
  format?: (value: number) => string;
}) {
  const { label, values, format = numberText } = props;
  const found = values.filter((value) => value !== null);
  const [first, last] = [found[0], found.at(-1)];
  if (first === undefined || last === undefined) return <span class="quiet">–</span>;
  const smallest = Math.min(...found);
  const text = `${label}: first ${format(first)}, last ${format(last)}, smallest ${format(smallest)}`;
  return (
    <svg class="sparkline" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} width={WIDTH} height={HEIGHT} role="img">
      <title>{text}</title>
      <path d={linePath(values, WIDTH, HEIGHT, MARGIN)} />
    </svg>
  );
}

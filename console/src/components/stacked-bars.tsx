/** Bars over time, each a stack of parts, with a legend that has the sums as text. */

export interface Bar {
  /** Start of the bar's time as text. */
  label: string;
  /** Name of a part → value. */
  values: Readonly<Record<string, number>>;
}

const MOST_PARTS = 7;
const WIDTH = 1000;
const HEIGHT = 160;

/** Return the names of the parts with the largest sums; the rest is `other`. */
export function largestParts(bars: readonly Bar[], most = MOST_PARTS): [string, number][] {
  const sums = new Map<string, number>();
  for (const bar of bars) {
    for (const [name, value] of Object.entries(bar.values)) sums.set(name, (sums.get(name) ?? 0) + value);
  }
  const ranked = [...sums].sort((one, other) => other[1] - one[1] || one[0].localeCompare(other[0]));
  const rest = ranked.slice(most).reduce((sum, [, value]) => sum + value, 0);
  return rest > 0 ? [...ranked.slice(0, most), ["other", rest]] : ranked.slice(0, most);
}

export function StackedBars(props: { label: string; bars: readonly Bar[]; text: (value: number) => string }) {
  const { bars, text } = props;
  const parts = largestParts(bars);
  const named = parts.filter(([name]) => name !== "other").map(([name]) => name);
  const stacks = bars.map((bar) => stackOf(bar, named));
  const most = Math.max(...stacks.map((stack) => stack.reduce((sum, value) => sum + value, 0)), 0);
  const width = WIDTH / Math.max(1, bars.length);
  return (
    <figure class="stacked-bars">
      <div class="plot">
        <span class="quiet most">{text(most)}</span>
        <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={props.label}>
          {stacks.map((stack, index) => {
            const bar = bars[index] as Bar;
            let top = HEIGHT;
            return (
              <g key={bar.label}>
                <title>{titleOf(bar, text)}</title>
                {stack.map((value, part) => {
                  const height = most === 0 ? 0 : (HEIGHT * value) / most;
                  top -= height;
                  return height === 0 ? null : (
                    <rect
                      key={named[part] ?? "other"}
                      class={`fill-${part + 1}`}
                      x={index * width + width * 0.08}
                      y={top}
                      width={width * 0.84}
                      height={height}
                    />
                  );
                })}
              </g>
            );
          })}
        </svg>
        <div class="ends quiet">
          <span>{bars[0]?.label}</span>
          <span>{bars.at(-1)?.label}</span>
        </div>
      </div>
      <figcaption>
        {parts.map(([name, value], index) => (
          <span key={name}>
            <i class={`dot fill-${index + 1}`} aria-hidden="true" />
            {name} <b>{text(value)}</b>
          </span>
        ))}
      </figcaption>
    </figure>
  );
}

function stackOf(bar: Bar, named: readonly string[]): number[] {
  const rest = Object.entries(bar.values).filter(([name]) => !named.includes(name));
  return [...named.map((name) => bar.values[name] ?? 0), rest.reduce((sum, [, value]) => sum + value, 0)];
}

function titleOf(bar: Bar, text: (value: number) => string): string {
  const parts = Object.entries(bar.values).filter(([, value]) => value > 0);
  return `${bar.label}: ${parts.length === 0 ? "none" : parts.map(([name, value]) => `${name} ${text(value)}`).join(", ")}`;
}

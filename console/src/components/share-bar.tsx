/** Parts of a whole as one bar, with a legend that has the same as text. */

export interface Share {
  label: string;
  value: number;
  /** Value as text, with its unit. */
  text: string;
  /** Name of a colour of the series, 1 to 8. */
  series: number;
}

export function ShareBar({ label, shares }: { label: string; shares: readonly Share[] }) {
  const total = shares.reduce((sum, share) => sum + share.value, 0);
  const shown = shares.filter((share) => share.value > 0);
  return (
    <figure class="share-bar">
      <svg viewBox="0 0 100 4" preserveAspectRatio="none" role="img" aria-label={label}>
        {shown.map((share, index) => {
          const before = shown.slice(0, index).reduce((sum, each) => sum + each.value, 0);
          const x = (100 * before) / total;
          return (
            <rect
              key={share.label}
              class={`fill-${share.series}`}
              x={x}
              width={(100 * share.value) / total}
              height="4"
            />
          );
        })}
      </svg>
      <figcaption>
        {shares.map((share) => (
          <span key={share.label}>
            <i class={`dot fill-${share.series}`} aria-hidden="true" />
            {share.label} <b>{share.text}</b>
          </span>
        ))}
      </figcaption>
    </figure>
  );
}

/** Layouts as text. Pure. */

/** Return the degrees above 1 of a layout, for example `tp 2 × dp_shard 4`. */
export function layoutParts(layout: unknown): string {
  const parts = Object.entries((layout ?? {}) as Record<string, unknown>)
    .filter(([, degree]) => typeof degree === "number" && degree > 1)
    .map(([name, degree]) => `${name} ${degree}`);
  return parts.length === 0 ? "1 rank" : parts.join(" × ");
}

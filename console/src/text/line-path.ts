/** The path of a line through values, for `d` of an SVG path. */

/**
 * Return the path of values at equal distances, from the left to the right; the largest value is at the top.
 *
 * A missing value interrupts the line. A value between two missing ones is a point.
 */
export function linePath(values: readonly (number | null)[], width: number, height: number, margin: number): string {
  const found = values.filter((value) => value !== null);
  const low = Math.min(...found);
  const range = Math.max(...found) - low;
  const distance = values.length > 1 ? (width - 2 * margin) / (values.length - 1) : 0;
  const parts: string[] = [];
  let isDrawing = false;
  for (const [index, value] of values.entries()) {
    if (value !== null) {
      const x = margin + index * distance;
      const y = range > 0 ? height - margin - ((value - low) / range) * (height - 2 * margin) : height / 2;
      const place = `${rounded(x)} ${rounded(y)}`;
      parts.push(isDrawing ? `L${place}` : `M${place}h0`);
    }
    isDrawing = value !== null;
  }
  return parts.join("");
}

function rounded(value: number): number {
  return Math.round(value * 10) / 10;
}

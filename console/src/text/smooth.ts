/** Smoothing of a line. */

/**
 * Return the exponential moving average of values; `weight` (0 to 1) is the part of the previous average.
 *
 * The average has no bias towards zero at its start. Missing values stay missing.
 */
export function smooth(values: readonly (number | null)[], weight: number): (number | null)[] {
  if (weight <= 0) return [...values];
  let average = 0;
  let correction = 1;
  return values.map((value) => {
    if (value === null) return null;
    average = weight * average + (1 - weight) * value;
    correction *= weight;
    return average / (1 - correction);
  });
}

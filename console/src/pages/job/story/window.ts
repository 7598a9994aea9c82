/** The visible part of a time axis: zoom, pan, positions and ticks. Pure. Times are seconds since the submission. */

export interface Span {
  from: number;
  to: number;
}

/** Shortest visible part. */
const SHORTEST_S = 0.2;
const STEPS_S = [
  0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400,
  172_800, 604_800, 1_209_600,
];

/** Return a span inside `whole`, at least as long as the shortest one. */
export function clamped(span: Span, whole: Span): Span {
  const longest = whole.to - whole.from;
  const length = Math.min(longest, Math.max(SHORTEST_S, span.to - span.from));
  const from = Math.min(Math.max(span.from, whole.from), whole.to - length);
  return { from, to: from + length };
}

/** Return the span magnified by `factor` around the time `at`, which keeps its position. */
export function zoomed(span: Span, factor: number, at: number, whole: Span): Span {
  const from = at - (at - span.from) / factor;
  return clamped({ from, to: from + (span.to - span.from) / factor }, whole);
}

/** Return the span moved by a share of its length. */
export function panned(span: Span, share: number, whole: Span): Span {
  const by = share * (span.to - span.from);
  return clamped({ from: span.from + by, to: span.to + by }, whole);
}

/** Return the position of a time in a width of pixels. */
export function position(time: number, span: Span, width: number): number {
  return ((time - span.from) / (span.to - span.from)) * width;
}

/** Return the time at a position. */
export function timeAt(x: number, span: Span, width: number): number {
  return span.from + (x / width) * (span.to - span.from);
}

/** Return true if a part of `each` is visible. */
export function overlaps(each: Span, span: Span): boolean {
  return each.to >= span.from && each.from <= span.to;
}

/** Return at most about `count` round times in the span. */
export function ticks(span: Span, count: number): number[] {
  const length = span.to - span.from;
  const step = STEPS_S.find((each) => length / each <= count) ?? Math.ceil(length / count / 604_800) * 604_800;
  const found: number[] = [];
  for (let index = Math.ceil(span.from / step); index * step <= span.to; index += 1) {
    found.push(Number((index * step).toFixed(3)));
  }
  return found;
}

/** Return the span of an address; `whole` where it says nothing that is valid. */
export function readSpan(from: string | null, to: string | null, whole: Span): Span {
  const first = from === null || from === "" ? Number.NaN : Number(from);
  const last = to === null || to === "" ? Number.NaN : Number(to);
  const span = {
    from: Number.isFinite(first) ? first : whole.from,
    to: Number.isFinite(last) ? last : whole.to,
  };
  return span.to > span.from ? clamped(span, whole) : whole;
}

/** Return the values of an address for a span. Empty values: the whole job. */
export function spanQuery(span: Span, whole: Span): { from: string; to: string } {
  const text = (time: number, edge: number) => (Math.abs(time - edge) < 1e-6 ? "" : String(Number(time.toFixed(2))));
  return { from: text(span.from, whole.from), to: text(span.to, whole.to) };
}

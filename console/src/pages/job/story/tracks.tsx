/** The rows of the time axis. Each draws only what is visible. */

import { numberText } from "../../../text/numbers";
import { durationText } from "../../../text/time";
import { type Entry, generationText, type Incident, PHASES, ranksText, type Story } from "./entries";
import { type ProgressLine, progressLines } from "./lines";
import { overlaps, position, type Span, ticks } from "./window";

/** What all rows share. */
export interface View {
  story: Story;
  /** Visible seconds since the submission. */
  span: Span;
  width: number;
  /** Present end of the job, seconds since the submission. */
  end: number;
  selectedIncident: number | undefined;
  selectedGeneration: number | undefined;
  onDetails: (text: string) => void;
  onIncident: (number: number) => void;
  onGeneration: (number: number) => void;
}

const HATCHED = new Set(["QUEUED", "SUSPENDED", "DRAINING"]);
const NARROW_PX = 3;

/** Position of a time of the API. */
function at(view: View, time_s: number): number {
  return position(time_s - view.story.from_s, view.span, view.width);
}

/** Left edge and width of a span of the API, cut to what is visible; undefined if nothing is. */
function box(view: View, from_s: number, until_s: number | null): { x: number; width: number } | undefined {
  const span = { from: from_s - view.story.from_s, to: until_s === null ? view.end : until_s - view.story.from_s };
  if (!overlaps(span, view.span)) return undefined;
  const x = Math.max(-2, position(span.from, view.span, view.width));
  const right = Math.min(view.width + 2, position(span.to, view.span, view.width));
  return { x, width: Math.max(1, right - x) };
}

function details(view: View, text: string) {
  return { onPointerEnter: () => view.onDetails(text), onFocus: () => view.onDetails(text) };
}

/** Activate with Enter or the space bar, as a button does. */
function onActivate(run: () => void): (event: KeyboardEvent) => void {
  return (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    event.stopPropagation();
    run();
  };
}

export function TimeRow({ view, height }: { view: View; height: number }) {
  return (
    <g class="story-time">
      {ticks(view.span, Math.max(2, view.width / 90)).map((tick) => {
        const x = position(tick, view.span, view.width);
        return (
          <g key={tick}>
            <line x1={x} x2={x} y1={16} y2={height} />
            <text x={x + 3} y={12}>
              {tick === 0 ? "0" : durationText(tick)}
            </text>
          </g>
        );
      })}
    </g>
  );
}

export function StateRow({ view, height }: { view: View; height: number }) {
  return (
    <>
      {view.story.states.map((each, index) => {
        const place = box(view, each.from_s, each.until_s);
        if (place === undefined) return null;
        const lasted = (each.until_s ?? view.story.from_s + view.end) - each.from_s;
        const text = `${each.state} for ${durationText(lasted)}${each.reason ? `, reason ${each.reason}` : ""}${each.message ? `: ${each.message}` : ""}`;
        const tone = `story-state ${each.state.toLowerCase()}${HATCHED.has(each.state) ? " hatched" : ""}`;
        return (
          <g key={index} class={tone} {...details(view, text)}>
            <rect x={place.x} y={1} width={place.width} height={height - 2} />
            {place.width > 8 * each.state.length && (
              <text x={Math.max(4, place.x + 5)} y={height / 2 + 4}>
                {each.state}
              </text>
            )}
          </g>
        );
      })}
    </>
  );
}

export function ProgressRow({ view, height }: { view: View; height: number }) {
  const lines = progressLines(view.story).filter((line) => {
    const first = line.points[0];
    const last = line.points.at(-1);
    return first && last && overlaps({ from: first.time, to: last.time }, view.span);
  });
  const shown = lines
    .flatMap((line) => line.points)
    .filter((point) => overlaps({ from: point.time, to: point.time }, view.span));
  const low = Math.min(
    ...(shown.length ? shown : lines.flatMap((line) => line.points)).map((point) => point.step),
    Number.POSITIVE_INFINITY,
  );
  const high = Math.max(...(shown.length ? shown : lines.flatMap((line) => line.points)).map((point) => point.step), 1);
  const bottom = Number.isFinite(low) && low < high ? low : 0;
  const y = (step: number) => height - 4 - ((step - bottom) / Math.max(1, high - bottom)) * (height - 14);
  const path = (line: ProgressLine) =>
    line.points
      .map(
        (point, index) =>
          `${index === 0 ? "M" : "L"}${position(point.time, view.span, view.width).toFixed(1)} ${y(point.step).toFixed(1)}`,
      )
      .join("");
  return (
    <>
      {view.story.incidents.map((each) => {
        const place = box(view, each.from_s, each.until_s);
        return (
          place && <rect key={each.number} class="story-gap" x={place.x} width={place.width} y={0} height={height} />
        );
      })}
      {lines.map((line) => (
        <path
          key={`${line.generation}-${line.isRepeated}`}
          class={`story-progress${line.isRepeated ? " repeated" : ""}`}
          d={path(line)}
        />
      ))}
      {lines.length > 0 && (
        <text class="story-note" x={view.width - 4} y={11} text-anchor="end">
          {`steps ${numberText(bottom, 12)} to ${numberText(high, 12)}`}
        </text>
      )}
    </>
  );
}

export function GenerationRow({ view, height }: { view: View; height: number }) {
  const widest = Math.max(1, ...view.story.generations.map((each) => each.world_size));
  return (
    <>
      {view.story.generations.map((each) => {
        const place = box(view, each.from_s, each.until_s);
        if (place === undefined) return null;
        const tall = Math.max(5, ((height - 4) * each.world_size) / widest);
        const isSelected = each.number === view.selectedGeneration;
        const select = () => view.onGeneration(each.number);
        const label = `${each.number}: ${ranksText(each)}`; // a part of the name that assistive technology reads
        return (
          // biome-ignore lint/a11y/useSemanticElements: a part of a drawing
          <g
            key={each.number}
            class={`story-generation ${each.restored_from}${isSelected ? " selected" : ""}`}
            role="button"
            tabindex={place.width > NARROW_PX ? 0 : -1}
            aria-pressed={isSelected}
            aria-label={generationText(each)}
            onClick={select}
            onKeyDown={onActivate(select)}
            {...details(view, generationText(each))}
          >
            <rect x={place.x} y={height - 2 - tall} width={place.width} height={tall} rx={2} />
            {place.width > 34 && (
              <text x={Math.max(4, place.x + 5)} y={height - 7}>
                {place.width > 7 * label.length
                  ? label
                  : place.width > 60
                    ? `${each.number}: ${each.world_size}`
                    : each.number}
              </text>
            )}
            {each.restored_from !== "nothing" && place.x >= 0 && (
              <path class="story-restore" d={`M${place.x} ${height - 2}v${4 - height}`} />
            )}
          </g>
        );
      })}
    </>
  );
}

export function IncidentRow({ view, height }: { view: View; height: number }) {
  return (
    <>
      {view.story.incidents.map((each) => {
        const place = box(view, each.from_s, each.until_s);
        if (place === undefined) return null;
        const isSelected = each.number === view.selectedIncident;
        const select = () => view.onIncident(each.number);
        const x = at(view, each.from_s);
        return (
          // biome-ignore lint/a11y/useSemanticElements: a part of a drawing
          <g
            key={each.number}
            class={`story-incident${isSelected ? " selected" : ""}`}
            role="button"
            tabindex={0}
            aria-pressed={isSelected}
            aria-label={`Incident ${each.number}: ${each.cause}`}
            onClick={select}
            onKeyDown={onActivate(select)}
            {...details(view, incidentText(each))}
          >
            <rect class="story-hit" x={place.x - 7} y={0} width={place.width + 14} height={height} />
            {PHASES.map((phase, index) => {
              const from_s = each.times[phase.from];
              const to_s = each.times[phase.to];
              if (from_s == null || to_s == null || to_s <= from_s) return null;
              const part = box(view, from_s, to_s);
              return (
                part && (
                  <rect
                    key={phase.id}
                    class={`fill-${index + 1}`}
                    x={part.x}
                    width={part.width}
                    y={height - 12}
                    height={9}
                  />
                )
              );
            })}
            <path class="story-mark bad" d={`M${x} 1l6 11h-12z`} />
            <text x={x + 9} y={11}>
              {each.number}
            </text>
          </g>
        );
      })}
    </>
  );
}

function incidentText(each: Incident): string {
  const phases = PHASES.filter((phase) => each.durations[phase.id] != null)
    .map((phase) => `${phase.label} ${durationText(each.durations[phase.id])}`)
    .join(", ");
  return `Incident ${each.number}: ${each.cause}. ${phases}. Press Enter for its evidence.`;
}

const SHAPES: Record<string, string> = {
  Checkpoint: "m0 3v14m-3 0h6",
  Mirror: "m0 9v8",
  Request: "m0 4l5 5-5 5-5-5z",
  Nodes: "m-4 5h8v8h-8z",
  "Slow rank": "m-5 6h10l-5 8z",
  Note: "m-3 9a3 3 0 1 0 6 0a3 3 0 1 0-6 0",
};

/** Checkpoints, requests and other moments. Those at the same place are drawn once. */
export function MarkRow({ view, entries }: { view: View; entries: readonly Entry[] }) {
  let last = Number.NEGATIVE_INFINITY;
  let lastKind = "";
  return (
    <>
      {entries.map((each) => {
        if (each.to !== undefined || !overlaps({ from: each.from, to: each.from }, view.span)) return null;
        const x = position(each.from, view.span, view.width);
        if (each.kind === lastKind && x - last < 2) return null;
        last = x;
        lastKind = each.kind;
        return (
          <g
            key={each.id}
            class={`story-moment ${each.kind.replace(" ", "-").toLowerCase()}`}
            {...details(view, each.text)}
          >
            <rect class="story-hit" x={x - 5} y={0} width={10} height={20} />
            <path d={`M${x} 0${SHAPES[each.kind] ?? SHAPES.Note}`} />
          </g>
        );
      })}
    </>
  );
}

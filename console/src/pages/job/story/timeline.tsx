/** The time axis: its rows, zoom and pan by pointer, wheel and keys. */

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Entry, Story } from "./entries";
import { NodesRow, nodeLayout } from "./nodes-row";
import { GenerationRow, IncidentRow, MarkRow, ProgressRow, StateRow, TimeRow, type View } from "./tracks";
import { panned, type Span, timeAt, zoomed } from "./window";

const LABELS_PX = 92;
const TIME_PX = 20;
const GAP_PX = 5;
const WHEEL_FACTOR = 1.0016;
const CLICK_PX = 4;

export function Timeline(props: {
  story: Story;
  entries: readonly Entry[];
  whole: Span;
  span: Span;
  onSpan: (span: Span) => void;
  incident: number | undefined;
  generation: number | undefined;
  onIncident: (number: number) => void;
  onGeneration: (number: number) => void;
}) {
  const { story, entries, whole, span, onSpan } = props;
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(900);
  const [text, setText] = useState("");
  const nodes = useMemo(() => nodeLayout(story, whole.to), [story, whole.to]);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(([entry]) => entry && setWidth(Math.max(200, entry.contentRect.width)));
    if (box.current) observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const drawn = Math.max(100, width - LABELS_PX);
  const view: View = {
    story,
    span,
    width: drawn,
    end: whole.to,
    selectedIncident: props.incident,
    selectedGeneration: props.generation,
    onDetails: setText,
    onIncident: props.onIncident,
    onGeneration: props.onGeneration,
  };
  const newest = useRef({ span, whole, drawn, onSpan });
  newest.current = { span, whole, drawn, onSpan };
  useWheel(box, newest);
  const drag = useDrag(newest);
  const tracks = [
    { id: "state", label: "State", height: 22, content: <StateRow view={view} height={22} /> },
    { id: "progress", label: "Step", height: 72, content: <ProgressRow view={view} height={72} /> },
    { id: "generations", label: "Generation", height: 44, content: <GenerationRow view={view} height={44} /> },
    { id: "incidents", label: "Incidents", height: 27, content: <IncidentRow view={view} height={27} /> },
    { id: "marks", label: "Saved", height: 20, content: <MarkRow view={view} entries={entries} /> },
    { id: "nodes", label: "", height: nodes.height, content: <NodesRow view={view} layout={nodes} /> },
  ];
  let y = TIME_PX + GAP_PX;
  const placed = tracks.map((track) => {
    const top = y;
    y += track.height + GAP_PX;
    return { ...track, top };
  });
  return (
    <div class="story-timeline" ref={box}>
      {/* biome-ignore lint/a11y/useSemanticElements: a drawing with buttons */}
      <svg
        role="group"
        aria-label="Time axis of the job. Arrow keys move, plus and minus zoom, 0 shows all."
        tabindex={0}
        width={width}
        height={y}
        {...drag}
        onKeyDown={(event) => onKey(event, newest.current)}
        onPointerLeave={() => setText("")}
      >
        <clipPath id="story-clip">
          <rect width={drawn} height={y} />
        </clipPath>
        <pattern id="story-hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <line x1="0" y1="0" x2="0" y2="6" />
        </pattern>
        <g transform={`translate(${LABELS_PX} 0)`} clip-path="url(#story-clip)">
          <TimeRow view={view} height={y} />
          {placed.map((track) => (
            <g key={track.id} transform={`translate(0 ${track.top})`}>
              {track.content}
            </g>
          ))}
        </g>
        {placed.map((track) => (
          <g key={track.id} class="story-label" transform={`translate(0 ${track.top})`}>
            {track.label !== "" && (
              <text x={0} y={14}>
                {track.label}
              </text>
            )}
            {track.id === "nodes" &&
              nodes.rows.map(
                (row) =>
                  row.height > 8 && (
                    <text key={`${row.name}-${row.y}`} x={0} y={row.y + 11}>
                      {row.name.length > 13 ? `…${row.name.slice(-12)}` : row.name}
                    </text>
                  ),
              )}
          </g>
        ))}
      </svg>
      <p class="story-details quiet" aria-live="polite">
        {text || "Point at a mark, or focus it with Tab, for its details. Ctrl and the wheel zoom, dragging moves."}
      </p>
      {nodes.hidden > 0 && <p class="quiet">{nodes.hidden} more nodes are not drawn.</p>}
    </div>
  );
}

interface Moves {
  span: Span;
  whole: Span;
  drawn: number;
  onSpan: (span: Span) => void;
}

function onKey(event: KeyboardEvent, { span, whole, onSpan }: Moves): void {
  const middle = (span.from + span.to) / 2;
  const next: Record<string, () => Span> = {
    ArrowLeft: () => panned(span, -0.2, whole),
    ArrowRight: () => panned(span, 0.2, whole),
    "+": () => zoomed(span, 1.5, middle, whole),
    "=": () => zoomed(span, 1.5, middle, whole),
    "-": () => zoomed(span, 1 / 1.5, middle, whole),
    "0": () => whole,
  };
  const move = next[event.key];
  if (move === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  event.stopPropagation();
  onSpan(move());
}

/** Ctrl and the wheel zoom; a horizontal wheel, or Shift and the wheel, moves. A plain wheel scrolls the page. */
function useWheel(box: { current: HTMLDivElement | null }, newest: { current: Moves }): void {
  useEffect(() => {
    const element = box.current;
    const onWheel = (event: WheelEvent) => {
      const { span, whole, drawn, onSpan } = newest.current;
      const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
      if (event.ctrlKey || event.metaKey) {
        const x = event.clientX - (element?.getBoundingClientRect().left ?? 0) - LABELS_PX;
        onSpan(zoomed(span, WHEEL_FACTOR ** -event.deltaY, timeAt(x, span, drawn), whole));
      } else if (Math.abs(sideways) > 0 && (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))) {
        onSpan(panned(span, sideways / drawn, whole));
      } else return;
      event.preventDefault();
    };
    element?.addEventListener("wheel", onWheel, { passive: false });
    return () => element?.removeEventListener("wheel", onWheel);
  }, []);
}

function useDrag(newest: { current: Moves }) {
  const start = useRef<{ x: number; span: Span; moved: boolean } | undefined>(undefined);
  return {
    onPointerDown: (event: PointerEvent) => {
      if (event.button === 0) start.current = { x: event.clientX, span: newest.current.span, moved: false };
    },
    onPointerMove: (event: PointerEvent) => {
      const begun = start.current;
      if (begun === undefined || event.buttons === 0) {
        start.current = undefined;
        return;
      }
      const by = begun.x - event.clientX;
      if (!begun.moved && Math.abs(by) < CLICK_PX) return;
      begun.moved = true;
      newest.current.onSpan(panned(begun.span, by / newest.current.drawn, newest.current.whole));
    },
    onPointerUp: () => {
      start.current = undefined;
    },
  };
}

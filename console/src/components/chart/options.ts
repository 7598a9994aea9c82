/** How lines, axes and marks of a chart look. Colours are those of the page, also after they change. */

import type uPlot from "uplot";
import { compactText, numberText } from "../../text/numbers";

export interface ChartLine {
  label: string;
  values: readonly (number | null)[];
  style: "solid" | "faint" | "dashed";
  /** Number of the colour, 1 to 8. */
  series: number;
  /** Lengths of dashes and gaps, where lines of one style must differ without their colours. */
  dash?: readonly number[];
}

export interface ChartMark {
  x: number;
  /** Short text at the mark, for example `g2`. */
  label: string;
  kind: "generation" | "incident";
}

export interface ChartView {
  lines: readonly ChartLine[];
  marks: readonly ChartMark[];
  axis: "step" | "time" | "tokens";
  isLogarithmic: boolean;
  /** Value as text, with its unit. */
  format: (value: number) => string;
}

const FONT = '11px system-ui, "Liberation Sans", sans-serif';
const DASHES: Record<ChartLine["style"], number[]> = { solid: [], faint: [], dashed: [6, 4] };

/** Return the options of a chart. `view` is asked again whenever the chart is drawn. */
export function chartOptions(view: () => ChartView, element: HTMLElement): Omit<uPlot.Options, "width" | "height"> {
  const { lines, axis, isLogarithmic } = view();
  const colour = (name: string) => () => colourOf(element, name);
  const axisStyle = {
    font: FONT,
    stroke: colour("--quiet"),
    grid: { stroke: colour("--line"), width: 1 },
    ticks: { show: false },
  };
  return {
    legend: { show: false },
    padding: [14, 12, 0, 0],
    cursor: { y: false, drag: { x: true, y: false, setScale: false } },
    scales: { x: { time: axis === "time" }, y: isLogarithmic ? { distr: 3 } : {} },
    axes: [
      { ...axisStyle, size: 26, ...(axis === "time" ? {} : { values: (_, ticks) => ticks.map(tickText) }) },
      {
        ...axisStyle,
        size: 68,
        values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : view().format(tick))),
      },
    ],
    series: [{}, ...lines.map((line) => seriesOf(line, colour(`--series-${line.series}`)))],
  };
}

function seriesOf(line: ChartLine, stroke: () => string): uPlot.Series {
  const isFaint = line.style === "faint";
  return {
    label: line.label,
    stroke,
    width: isFaint ? 1 : 1.75,
    alpha: isFaint ? 0.4 : 1,
    dash: line.dash === undefined ? DASHES[line.style] : [...line.dash],
    spanGaps: line.style === "solid",
    points: { size: 5, ...(line.style === "dashed" ? { show: false } : {}) },
  };
}

/** Draw marks over a chart: a dashed line for a generation, a triangle on the axis for an incident. */
export function drawMarks(self: uPlot, marks: readonly ChartMark[], element: HTMLElement): void {
  const { ctx, bbox } = self;
  const ratio = devicePixelRatio;
  ctx.save();
  ctx.font = FONT.replace("11px", `${11 * ratio}px`);
  ctx.textAlign = "left";
  for (const mark of marks) {
    const x = self.valToPos(mark.x, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = ctx.fillStyle = colourOf(element, mark.kind === "incident" ? "--bad" : "--quiet");
    ctx.lineWidth = ratio;
    ctx.beginPath();
    if (mark.kind === "incident") {
      const bottom = bbox.top + bbox.height;
      ctx.moveTo(x, bottom - 8 * ratio);
      ctx.lineTo(x + 5 * ratio, bottom);
      ctx.lineTo(x - 5 * ratio, bottom);
      ctx.fill();
    } else {
      ctx.setLineDash([2 * ratio, 3 * ratio]);
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.fillText(mark.label, x + 3 * ratio, bbox.top - 3 * ratio);
    }
  }
  ctx.restore();
}

function tickText(tick: number | null): string {
  if (tick === null) return "";
  return Math.abs(tick) >= 10_000 ? compactText(tick) : numberText(tick);
}

function colourOf(element: HTMLElement, name: string): string {
  // A custom property is not resolved for the colour scheme: a property that uses it is.
  const probe = element.appendChild(document.createElement("span"));
  probe.style.color = `var(${name})`;
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

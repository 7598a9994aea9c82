/** A chart of lines over one axis, with marks. It is loaded only with pages that show curves. */

import type { Signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import "./line-chart.css";
import { theme } from "../../state/theme";
import { type ChartView, chartOptions, drawMarks } from "./options";

export type { ChartLine, ChartMark } from "./options";

export interface LineChartProps extends ChartView {
  /** Name of the chart, for example `Loss`. */
  label: string;
  /** Values of the horizontal axis, in order. Each line has one value for each of them. */
  x: readonly number[];
  /** Place of the cursor on the horizontal axis, which several charts share. */
  cursor: Signal<number | undefined>;
  /** The reader selected a range of the horizontal axis. */
  onZoom?: (from: number, to: number) => void;
  /** The reader wants to see everything again. */
  onReset?: () => void;
}

export function LineChart(props: LineChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot>(undefined);
  const newest = useRef(props);
  newest.current = props;
  const structure = JSON.stringify([
    props.axis,
    props.isLogarithmic,
    props.lines.map((line) => [line.label, line.style, line.series, line.dash]),
  ]);

  // The structure stands for the properties that it contains.
  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const made = new uPlot(
      {
        ...chartOptions(() => newest.current, element),
        width: element.clientWidth,
        height: element.clientHeight,
        hooks: {
          draw: [(self) => drawMarks(self, newest.current.marks, element)],
          setCursor: [(self) => followPointer(self, newest.current.cursor)],
          setSelect: [(self) => select(self, newest.current.onZoom)],
        },
      },
      dataOf(newest.current),
      element,
    );
    chart.current = made;
    const reset = () => newest.current.onReset?.();
    made.over.addEventListener("dblclick", reset);
    const observer = new ResizeObserver(() =>
      made.setSize({ width: element.clientWidth, height: element.clientHeight }),
    );
    observer.observe(element);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const redraw = () => made.redraw(false);
    scheme.addEventListener("change", redraw);
    const stops = [theme.subscribe(() => requestAnimationFrame(redraw)), showCursor(made, newest.current.cursor)];
    return () => {
      observer.disconnect();
      scheme.removeEventListener("change", redraw);
      for (const stop of stops) stop();
      made.destroy();
    };
  }, [structure]);

  useEffect(() => chart.current?.setData(dataOf(props)), [props.x, props.lines]);
  useEffect(() => chart.current?.redraw(false), [props.marks]);

  return <div class="line-chart" ref={box} role="img" aria-label={props.label} />;
}

function dataOf({ x, lines, isLogarithmic }: LineChartProps): uPlot.AlignedData {
  const values = lines.map((line) =>
    line.values.map((value) => (isLogarithmic && value !== null && value <= 0 ? null : value)),
  );
  return [[...x], ...values] as uPlot.AlignedData;
}

function followPointer(self: uPlot, cursor: Signal<number | undefined>): void {
  if (self.cursor.event === undefined || self.cursor.event === null) return; // moved by `showCursor`
  const index = self.cursor.idx;
  cursor.value = index === null || index === undefined ? undefined : self.data[0][index];
}

function showCursor(self: uPlot, cursor: Signal<number | undefined>): () => void {
  return cursor.subscribe((value) => {
    const left = value === undefined ? -10 : self.valToPos(value, "x");
    if (Math.abs((self.cursor.left ?? -10) - left) > 0.5) self.setCursor({ left, top: -10 }, false);
  });
}

function select(self: uPlot, onZoom: LineChartProps["onZoom"]): void {
  const { left, width } = self.select;
  if (width < 4) return;
  self.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  onZoom?.(self.posToVal(left, "x"), self.posToVal(left + width, "x"));
}

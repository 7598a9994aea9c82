/** Lines of output: each with a link to it. Lines out of view cost no layout. */

import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { href } from "../../../state/router";
import { numberText } from "../../../text/numbers";
import { ansiSpans, markedSpans } from "./ansi";
import type { LogLine } from "./line-buffer";

const BLOCK = 100;
const NEAR_PX = 60;

export function LineList(props: {
  lines: readonly LogLine[];
  /** Address of the job's page. */
  base: string;
  /** Text to mark. */
  text: string;
  isWrapped: boolean;
  isMerged: boolean;
  isFollowing: boolean;
  /** Offset of the line of the address. */
  current: number | undefined;
  onFirst: () => void;
  onBottom: () => void;
}) {
  const { lines, current, isFollowing } = props;
  const box = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const first = useRef<LogLine | undefined>(undefined);
  const height = useRef(0);
  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return;
    const before = first.current;
    if (before !== undefined && lines[0] !== before && lines.includes(before)) {
      element.scrollTop += element.scrollHeight - height.current; // earlier lines were added above
    } else if (isFollowing && isAtEnd.current && current === undefined) element.scrollTop = element.scrollHeight;
    first.current = lines[0];
    height.current = element.scrollHeight;
  }, [lines, isFollowing]);
  const isFound = current !== undefined && lines.some((line) => line.offset === current);
  useEffect(() => {
    if (isFound) box.current?.querySelector('[aria-current="true"]')?.scrollIntoView({ block: "center" });
  }, [current, isFound]);
  const onScroll = () => {
    const element = box.current;
    if (element === null) return;
    const below = element.scrollHeight - element.scrollTop - element.clientHeight;
    isAtEnd.current = below < NEAR_PX;
    if (element.scrollTop < NEAR_PX) props.onFirst();
    if (isAtEnd.current) props.onBottom();
  };
  const blocks: LogLine[][] = [];
  for (let at = 0; at < lines.length; at += BLOCK) blocks.push(lines.slice(at, at + BLOCK));
  return (
    <div
      class={props.isWrapped ? "logs-lines wrapped" : "logs-lines"}
      ref={box}
      role="log"
      aria-live="off"
      aria-label="Output"
      // biome-ignore lint/a11y/noNoninteractiveTabindex: the lines scroll with the keyboard
      tabIndex={0}
      onScroll={onScroll}
    >
      {blocks.map((block) => (
        <div
          key={`${block[0]?.rank}.${block[0]?.offset}`}
          class="logs-block"
          style={{ containIntrinsicHeight: `auto ${block.length * 1.4}em` }}
        >
          {block.map((line, index) => (
            <Line key={`${line.rank}.${line.offset}.${index}`} line={line} {...props} />
          ))}
        </div>
      ))}
    </div>
  );
}

function Line(props: { line: LogLine; base: string; text: string; isMerged: boolean; current: number | undefined }) {
  const { line } = props;
  const isCurrent = !props.isMerged && line.offset === props.current;
  const values = {
    rank: `${line.rank}`,
    generation: `${line.generation}`,
    stream: line.stream,
    offset: `${line.offset}`,
  };
  const place = props.isMerged ? `${line.rank} ${line.stream === "stderr" ? "E" : "O"}` : numberText(line.offset, 16);
  return (
    <div
      class={line.stream === "stderr" ? "logs-line stderr" : "logs-line"}
      aria-current={isCurrent ? "true" : undefined}
    >
      <a
        href={href(props.base, values)}
        tabIndex={-1}
        title={`Link to the line at byte ${line.offset} of rank ${line.rank}`}
      >
        {place}
      </a>
      <code>
        {markedSpans(ansiSpans(line.text), props.text).map((span, index) =>
          span.isMarked ? (
            <mark key={`${index}`}>{span.text}</mark>
          ) : (
            <span key={`${index}`} class={span.style}>
              {span.text}
            </span>
          ),
        )}
      </code>
    </div>
  );
}

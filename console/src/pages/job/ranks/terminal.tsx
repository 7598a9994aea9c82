/** Runs commands next to a rank. It is not a shell: each command is one program with its arguments. */

import { useEffect, useRef, useState } from "preact/hooks";
import { toProblem } from "../../../api/problem";
import { CommandBlock } from "../../../components/command-block";
import { commandText, curlText } from "../../../text/commands";
import { runCommand } from "./exec-stream";
import { splitWords } from "./words";

interface Run {
  line: string;
  rank: number;
  output: { stream: string; text: string }[];
  end: string;
}

const MAX_CHARACTERS = 200_000;

export function Terminal({ job, ranks }: { job: string; ranks: readonly number[] }) {
  const [rank, setRank] = useState(ranks[0] ?? 0);
  const [line, setLine] = useState("");
  const [runs, setRuns] = useState<Run[]>([]);
  const [place, setPlace] = useState(0);
  const abort = useRef<AbortController | undefined>(undefined);
  const screen = useRef<HTMLDivElement>(null);
  const words = splitWords(line);
  useEffect(() => () => abort.current?.abort(), []);
  useEffect(() => {
    if (ranks.length > 0 && !ranks.includes(rank)) setRank(ranks[0] ?? 0);
  }, [ranks]);
  useEffect(() => {
    if (screen.current) screen.current.scrollTop = screen.current.scrollHeight;
  }, [runs]);
  const isRunning = runs.at(-1)?.end === "";
  const changeLast = (change: (run: Run) => Run) =>
    setRuns((all) => all.map((run, at) => (at === all.length - 1 ? change(run) : run)));
  const start = async (event: Event) => {
    event.preventDefault();
    if (words.words === undefined || isRunning) return;
    setRuns((all) => [...all.slice(-49), { line, rank, output: [], end: "" }]);
    setLine("");
    setPlace(0);
    abort.current = new AbortController();
    let end: string;
    try {
      const exit = await runCommand(
        job,
        words.words,
        rank,
        {
          onStart: () => undefined,
          onOutput: (stream, text) => changeLast((run) => ({ ...run, output: appended(run.output, stream, text) })),
        },
        abort.current.signal,
      );
      end = exit.why === "exited" ? `exit code ${exit.code}` : `${exit.why} (exit code ${exit.code})`;
    } catch (error) {
      const problem = toProblem(error);
      end = abort.current.signal.aborted ? "stopped" : `refused: ${problem.message}`;
    }
    changeLast((run) => ({ ...run, end }));
  };
  const recall = (event: KeyboardEvent) => {
    if (event.key !== "ArrowUp" && event.key !== "ArrowDown") return;
    const next = Math.min(runs.length, Math.max(0, place + (event.key === "ArrowUp" ? 1 : -1)));
    event.preventDefault();
    setPlace(next);
    setLine(next === 0 ? "" : (runs[runs.length - next]?.line ?? ""));
  };
  return (
    <section class="ranks-terminal" aria-label="Terminal">
      <p class="notice warning">
        A command runs as the job's user on the node of the rank, with the environment, the folder and the devices of
        the rank. It runs without a shell and without input, and it is written to the history of the job. It needs the
        permission <code>exec</code> in the project.
      </p>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the output scrolls with the keyboard */}
      <div class="ranks-screen" ref={screen} role="log" aria-label="Output of commands" tabIndex={0}>
        {runs.length === 0 && <p class="quiet">Nothing was run yet.</p>}
        {runs.map((run, index) => (
          <div key={`${index}`}>
            <p class="ranks-prompt">
              rank {run.rank} $ {run.line}
            </p>
            <pre>
              {run.output.map((piece, at) => (
                <span key={`${at}`} class={piece.stream === "stderr" ? "ranks-stderr" : ""}>
                  {piece.text}
                </span>
              ))}
            </pre>
            <p class="quiet">{run.end === "" ? "runs…" : run.end}</p>
          </div>
        ))}
      </div>
      <form class="row" onSubmit={(event) => void start(event)}>
        <label>
          On rank
          <input
            type="number"
            min={0}
            value={rank}
            onInput={(event) => setRank(Math.max(0, Number(event.currentTarget.value) || 0))}
          />
        </label>
        <label class="ranks-command">
          Command
          <input
            value={line}
            onInput={(event) => setLine(event.currentTarget.value)}
            onKeyDown={recall}
            autocomplete="off"
            spellcheck={false}
            placeholder="nvidia-smi"
          />
        </label>
        {isRunning ? (
          <button type="button" class="danger" onClick={() => abort.current?.abort()}>
            Stop
          </button>
        ) : (
          <button type="submit" class="primary" disabled={words.words === undefined}>
            Run
          </button>
        )}
        {line !== "" && words.problem && <span class="quiet">{words.problem}</span>}
      </form>
      <CommandBlock
        commands={[commandText("regroup", "exec", job, "--rank", `${rank}`, "--", ...(words.words ?? ["COMMAND"]))]}
        curl={curlText({
          method: "post",
          path: "/v1/jobs/{job}/exec",
          values: { job },
          body: { command: words.words ?? ["COMMAND"], rank },
        })}
      />
    </section>
  );
}

function appended(output: Run["output"], stream: string, text: string): Run["output"] {
  const last = output.at(-1);
  const next =
    last?.stream === stream
      ? [...output.slice(0, -1), { stream, text: last.text + text }]
      : [...output, { stream, text }];
  const size = next.reduce((sum, piece) => sum + piece.text.length, 0);
  if (size <= MAX_CHARACTERS) return next;
  const [first, ...rest] = next;
  return first === undefined ? next : [{ ...first, text: `…${first.text.slice(size - MAX_CHARACTERS)}` }, ...rest];
}

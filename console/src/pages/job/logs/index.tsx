/** The output of a job: of one rank by offset, or of all ranks as it arrives. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { get } from "../../../api/client";
import { toProblem } from "../../../api/problem";
import { CommandBlock } from "../../../components/command-block";
import { ErrorState, Loading } from "../../../components/states";
import { toast } from "../../../components/toasts";
import { useKeys } from "../../../state/keys";
import { useResource } from "../../../state/resource";
import { query, setQuery } from "../../../state/router";
import { commandText, curlText } from "../../../text/commands";
import { bytesText } from "../../../text/numbers";
import { useJob } from "../job-context";
import type { Source } from "./line-buffer";
import { LineList } from "./line-list";
import { LogModel, MergedModel } from "./log-model";
import { download } from "./output";
import { SearchResults } from "./search";
import "./logs.css";

const ALL = "all";

export default function LogsTab() {
  const { job } = useJob();
  const generations = useResource(
    (signal) => get("/v1/jobs/{job}/generations", { path: { job: job.id }, signal }),
    [job.id, job.generation],
  );
  const values = query.value;
  const rank = values.get("rank") ?? "0";
  const generation = Number(values.get("generation")) || Math.max(1, job.generation);
  const stream = values.get("stream") === "stderr" ? "stderr" : "stdout";
  const text = values.get("text") ?? "";
  const found = generations.data.value?.generations.find((each) => each.number === generation);
  const source: Source = { generation, rank: Number(rank) || 0, stream };
  const ranks = found?.world_size ?? 1;
  return (
    <div class="logs">
      <Controls ranks={ranks} generations={Math.max(1, job.generation)} source={source} isMerged={rank === ALL} />
      {text !== "" && (
        <SearchResults
          key={`${text} ${rank}`}
          job={job.id}
          text={text}
          rank={rank === ALL ? undefined : source.rank}
          onClose={() => setQuery({ text: "" })}
        />
      )}
      {rank === ALL ? (
        <Merged key={`${generation}`} generation={generation} />
      ) : (
        <OneRank key={`${generation}.${rank}.${stream}`} source={source} />
      )}
    </div>
  );
}

function Controls(props: { ranks: number; generations: number; source: Source; isMerged: boolean }) {
  const { source, isMerged } = props;
  const values = query.value;
  const [text, setText] = useState(values.get("text") ?? "");
  const isWrapped = values.get("wrap") === "yes";
  const choose = (name: string, value: string) => setQuery({ [name]: value, offset: "" });
  return (
    <form
      class="row logs-controls"
      onSubmit={(event) => {
        event.preventDefault();
        setQuery({ text: text.trim() });
      }}
    >
      <label>
        Rank
        <select
          aria-label="Rank"
          value={isMerged ? ALL : `${source.rank}`}
          onChange={(event) => choose("rank", event.currentTarget.value)}
        >
          <option value={ALL}>All ranks</option>
          {Array.from({ length: Math.max(props.ranks, source.rank + 1) }, (_, rank) => (
            <option key={rank} value={`${rank}`}>
              {rank}
            </option>
          ))}
        </select>
      </label>
      <label>
        Output
        <select
          aria-label="Output"
          value={source.stream}
          disabled={isMerged}
          onChange={(event) => choose("stream", event.currentTarget.value)}
        >
          <option value="stdout">stdout</option>
          <option value="stderr">stderr</option>
        </select>
      </label>
      <label>
        Generation
        <select
          aria-label="Generation"
          value={`${source.generation}`}
          onChange={(event) => choose("generation", event.currentTarget.value)}
        >
          {Array.from({ length: props.generations }, (_, index) => (
            <option key={index} value={`${index + 1}`}>
              {index + 1}
            </option>
          ))}
        </select>
      </label>
      <label class="logs-text">
        Search
        <input
          type="search"
          data-filter
          value={text}
          maxLength={200}
          placeholder={isMerged ? "in all ranks and generations" : "in this rank"}
          onInput={(event) => setText(event.currentTarget.value)}
        />
      </label>
      <button type="submit">Search</button>
      <label class="check">
        <input
          type="checkbox"
          checked={isWrapped}
          onChange={(event) => setQuery({ wrap: event.currentTarget.checked ? "yes" : "" })}
        />
        Wrap lines
      </label>
    </form>
  );
}

function OneRank({ source }: { source: Source }) {
  const { job } = useJob();
  const model = useMemo(() => new LogModel(job.id, source, source.generation >= job.generation), []);
  const offsetText = query.value.get("offset");
  const offset = offsetText === null || !/^\d{1,15}$/.test(offsetText) ? undefined : Number(offsetText);
  useEffect(() => () => model.close(), []);
  useEffect(() => {
    if (offset === undefined) void model.showEnd();
    else if (!model.lines.value.some((line) => line.offset === offset)) void model.showFrom(offset);
  }, [offset]);
  const showStart = () => setQuery({ offset: "0" });
  const showEnd = () => (offset === undefined ? void model.showEnd() : setQuery({ offset: "" }));
  useKeys([
    { key: "Home", label: "Show the beginning of the output", run: showStart },
    { key: "End", label: "Show the end of the output", run: showEnd },
  ]);
  const lines = model.lines.value;
  const problem = model.problem.value;
  return (
    <>
      <div class="row logs-bar">
        <button type="button" onClick={showStart}>
          Start
        </button>
        <button type="button" onClick={showEnd}>
          End
        </button>
        <span class="quiet" role="status">
          {model.isFollowing.value
            ? "New lines appear as they are written."
            : "Not following: scroll to the end, or press End."}{" "}
          {bytesText(model.size.value)}
        </span>
        <Download source={source} />
      </div>
      {problem !== undefined && <ErrorState problem={problem} onRetry={showEnd} />}
      {lines.length === 0 &&
        problem === undefined &&
        (model.isLoading.value ? <Loading label="Loading the output" /> : <Empty source={source} />)}
      {lines.length > 0 && (
        <LineList
          lines={lines}
          base={`jobs/${job.id}/logs`}
          text={query.value.get("text") ?? ""}
          isWrapped={query.value.get("wrap") === "yes"}
          isMerged={false}
          isFollowing={model.isFollowing.value}
          current={offset}
          onFirst={() => void model.showEarlier()}
          onBottom={() => void model.showLater()}
        />
      )}
      <Commands source={source} />
    </>
  );
}

function Empty({ source }: { source: Source }) {
  const { job } = useJob();
  const other = source.stream === "stdout" ? "stderr" : "stdout";
  return (
    <div class="state">
      <h2>
        Rank {source.rank} printed nothing to {source.stream} in generation {source.generation}
      </h2>
      {job.spec?.workload.kind === "builtin" && (
        <p>The built-in trainer prints nothing. See the curves for its progress.</p>
      )}
      <button type="button" onClick={() => setQuery({ stream: other })}>
        Show {other}
      </button>
    </div>
  );
}

function Download({ source }: { source: Source }) {
  const { job } = useJob();
  const save = async () => {
    try {
      await download(job.id, source, `${job.name}-g${source.generation}-rank${source.rank}.${source.stream}.log`);
    } catch (error) {
      toast(`The output could not be saved: ${toProblem(error).message}`);
    }
  };
  return (
    <button type="button" onClick={() => void save()}>
      Download
    </button>
  );
}

function Merged({ generation }: { generation: number }) {
  const { job } = useJob();
  const isOld = generation < job.generation;
  const model = useMemo(() => new MergedModel(job.id, ["stdout", "stderr"], isOld ? generation : undefined), []);
  useEffect(() => () => model.close(), []);
  const problem = model.problem.value;
  const lines = model.lines.value;
  return (
    <>
      <p class="quiet logs-bar" role="status">
        The first 32 ranks, from near the end of each output. Lines have no times: those written before now come rank by
        rank, new ones as they arrive{model.isFollowing.value ? "." : "; the output has ended."}
      </p>
      {problem !== undefined && <ErrorState problem={problem} />}
      {lines.length === 0 && problem === undefined && (
        <Loading label={model.isFollowing.value ? "Waiting for output" : "No rank printed anything"} />
      )}
      {lines.length > 0 && (
        <LineList
          lines={lines}
          base={`jobs/${job.id}/logs`}
          text={query.value.get("text") ?? ""}
          isWrapped={query.value.get("wrap") === "yes"}
          isMerged
          isFollowing
          current={undefined}
          onFirst={() => undefined}
          onBottom={() => undefined}
        />
      )}
    </>
  );
}

function Commands({ source }: { source: Source }) {
  const { job } = useJob();
  const words = ["regroup", "logs", job.id, "--rank", `${source.rank}`, "--generation", `${source.generation}`];
  return (
    <CommandBlock
      commands={[commandText(...words, "--stream", source.stream)]}
      curl={curlText({ method: "get", path: "/v1/jobs/{job}/logs", values: { job: job.id }, query: { ...source } })}
    />
  );
}

/** Legal sizes of a job on a slider, with the expected speed and the gap of a resize; and the resize itself. */

import { useState } from "preact/hooks";
import { change } from "../../../api/client";
import type { Schema } from "../../../api/types";
import { ActionDialog } from "../../../components/action-dialog";
import { ScrollBox } from "../../../components/scroll-box";
import { Stat } from "../../../components/stat";
import { commandText } from "../../../text/commands";
import { countText, numberText } from "../../../text/numbers";
import { durationText } from "../../../text/time";
import { useJob } from "../job-context";
import { layoutText, worldSize } from "./mesh";

type Size = Schema<"JobSize">;

export function Sizes({ sizes }: { sizes: Schema<"JobSizes"> }) {
  const { job } = useJob();
  const current = sizes.sizes.findIndex((each) => sizes.current !== null && isSame(each.layout, sizes.current));
  const requested = sizes.sizes.findIndex((each) => sizes.requested !== null && isSame(each.layout, sizes.requested));
  const start = requested >= 0 ? requested : Math.max(0, current);
  const [chosen, setChosen] = useState<number>();
  const [isOpen, setOpen] = useState(false);
  const index = Math.min(chosen ?? start, sizes.sizes.length - 1);
  const size = sizes.sizes[index];
  if (size === undefined) return null;
  const now = sizes.sizes[current];
  const isEnded = ["SUCCEEDED", "FAILED", "CANCELLED"].includes(job.state);
  return (
    <section class="card layout-sizes" aria-labelledby="layout-sizes-title">
      <h2 id="layout-sizes-title">Size</h2>
      <div class="layout-slider">
        <div class="grow">
          <label for="layout-size">Number of ranks</label>
          <input
            id="layout-size"
            type="range"
            min={0}
            max={sizes.sizes.length - 1}
            step={1}
            value={index}
            list="layout-sizes-list"
            disabled={sizes.sizes.length < 2}
            aria-valuetext={`${countText(size.ranks, "rank")}, ${layoutText(size.layout)}`}
            onInput={(event) => setChosen(Number(event.currentTarget.value))}
          />
          <datalist id="layout-sizes-list">
            {sizes.sizes.map((each, at) => (
              <option key={each.ranks} value={at} label={String(each.ranks)} />
            ))}
          </datalist>
          <span class="ends" aria-hidden="true">
            <span>{sizes.sizes[0]?.ranks}</span>
            <span>{sizes.sizes.at(-1)?.ranks}</span>
          </span>
        </div>
        <button type="button" class="primary" disabled={isEnded || index === start} onClick={() => setOpen(true)}>
          Resize
        </button>
      </div>
      <div class="stats">
        <Stat label="Size" note={layoutText(size.layout)}>
          {countText(size.ranks, "rank")}
        </Stat>
        <Stat label="Time of a step" note={size.basis || "no basis for an estimate"}>
          {durationText(size.expected_step_s)}
        </Stat>
        <Stat label="Speed" note={size.tokens_per_s === null ? "" : `${numberText(size.tokens_per_s, 3)} tokens/s`}>
          {speedText(size, now)}
        </Stat>
        <Stat label="Time without steps" note={sizes.gap.basis}>
          {durationText(sizes.gap.seconds)}
        </Stat>
      </div>
      <Notes sizes={sizes} size={size} isEnded={isEnded} />
      <SizeTable sizes={sizes} current={current} />
      {isOpen && <ResizeDialog size={size} sizes={sizes} now={now} onClose={() => setOpen(false)} />}
    </section>
  );
}

function Notes({ sizes, size, isEnded }: { sizes: Schema<"JobSizes">; size: Size; isEnded: boolean }) {
  return (
    <>
      {sizes.sizes.length < 2 && (
        <p class="quiet">
          The spec allows only this size. Set <code>layout.dp.min</code> and <code>layout.dp.max</code> to allow others.
        </p>
      )}
      {isEnded && <p class="quiet">The job has ended, so it cannot be resized.</p>}
      {sizes.requested !== null && (
        <p class="notice">A resize to {countText(worldSize(sizes.requested), "rank")} is pending.</p>
      )}
      {sizes.open_ranks !== null && size.ranks > sizes.open_ranks && (
        <p class="notice warning">
          The open nodes hold {countText(sizes.open_ranks, "rank")} of this job. A larger size waits for more nodes.
        </p>
      )}
      {sizes.why_not && <p class="quiet">No predictions: {sizes.why_not}.</p>}
    </>
  );
}

function SizeTable({ sizes, current }: { sizes: Schema<"JobSizes">; current: number }) {
  return (
    <details>
      <summary>All {sizes.sizes.length} legal sizes</summary>
      <ScrollBox label="Legal sizes">
        <table>
          <thead>
            <tr>
              <th scope="col" class="number">
                Ranks
              </th>
              <th scope="col">Layout</th>
              <th scope="col" class="number">
                Step
              </th>
              <th scope="col" class="number">
                Device-time per step
              </th>
              <th scope="col">Basis</th>
            </tr>
          </thead>
          <tbody>
            {sizes.sizes.map((each, index) => (
              <tr key={each.ranks} aria-current={index === current ? "true" : undefined}>
                <td class="number">{each.ranks}</td>
                <td>
                  {layoutText(each.layout)}
                  {index === current && " (now)"}
                </td>
                <td class="number">{durationText(each.expected_step_s)}</td>
                <td class="number">
                  {each.expected_step_s === null ? "–" : durationText(each.expected_step_s * each.ranks)}
                </td>
                <td>{each.basis || "–"}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </ScrollBox>
    </details>
  );
}

function ResizeDialog(props: { size: Size; sizes: Schema<"JobSizes">; now: Size | undefined; onClose: () => void }) {
  const { size, sizes, now, onClose } = props;
  const { job, refresh } = useJob();
  const dp = size.layout.dp_replicate * size.layout.dp_shard;
  const body = { dp, tp: size.layout.tp, pp: size.layout.pp };
  const spec = job.spec?.layout;
  const isSameSplit = spec?.tp === body.tp && spec?.pp === body.pp;
  const sent = { ...(isSameSplit ? { dp } : body), reason: "resized on request" };
  const path = { job: job.id };
  const action = {
    title: `Resize to ${countText(size.ranks, "rank")}`,
    requests: [{ method: "post", path: "/v1/jobs/{job}/resize", values: path, body: sent }],
    commands: [
      commandText("regroup", "resize", job.id, "--dp", String(dp), ...(isSameSplit ? [] : splitOptions(body))),
    ],
    run: (isDryRun: boolean) =>
      change("post", "/v1/jobs/{job}/resize", { path, query: { dry_run: isDryRun }, body: sent }),
    done: `${job.name} will have ${countText(size.ranks, "rank")}`,
  };
  return (
    <ActionDialog
      action={action}
      onClose={onClose}
      onDone={refresh}
      effect={() => (
        <ul>
          <li>
            {job.name} changes from {now ? countText(now.ranks, "rank") : "its present size"} to{" "}
            {countText(size.ranks, "rank")} ({layoutText(size.layout)}).
          </li>
          <li>
            No step is lost. About {durationText(sizes.gap.seconds)} pass without steps ({sizes.gap.basis}).
          </li>
          {size.expected_step_s !== null && (
            <li>
              A step then takes about {durationText(size.expected_step_s)} ({size.basis})
              {now?.expected_step_s ? `; now ${durationText(now.expected_step_s)}` : ""}.
            </li>
          )}
          {sizes.open_ranks !== null && size.ranks > sizes.open_ranks && (
            <li>The request waits until there are enough open nodes.</li>
          )}
        </ul>
      )}
    />
  );
}

function splitOptions(body: { tp: number; pp: number }): string[] {
  return ["--tp", String(body.tp), "--pp", String(body.pp)];
}

function speedText(size: Size, now: Size | undefined): string {
  if (!size.expected_step_s || !now?.expected_step_s) return "–";
  const faster =
    size.tokens_per_s !== null && now.tokens_per_s
      ? size.tokens_per_s / now.tokens_per_s
      : now.expected_step_s / size.expected_step_s;
  return size === now ? "as now" : `${numberText(faster, 3)} × now`;
}

function isSame(one: Schema<"Layout">, other: Schema<"Layout">): boolean {
  const names = ["tp", "cp", "dp_shard", "dp_replicate", "pp"] as const;
  return names.every((name) => one[name] === other[name]);
}

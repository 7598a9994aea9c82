/** Compare the files of a checkpoint with its manifest, part by part, with progress. */

import { useEffect, useState } from "preact/hooks";
import { change } from "../../../api/client";
import { type Problem, toProblem } from "../../../api/problem";
import type { Schema } from "../../../api/types";
import { ProblemText } from "../../../components/action-dialog";
import { CommandBlock } from "../../../components/command-block";
import { Dialog } from "../../../components/dialog";
import { commandText, curlText } from "../../../text/commands";
import { bytesText, countText, percentText } from "../../../text/numbers";
import { useJob } from "../job-context";

type Part = Schema<"CheckpointVerification">;
const PATH = "/v1/jobs/{job}/checkpoints/{step}/verify";

export function VerifyDialog(props: { checkpoint: Schema<"Checkpoint">; onClose: () => void }) {
  const { job } = useJob();
  const { step } = props.checkpoint;
  const path = { job: job.id, step };
  const [part, setPart] = useState<Part>();
  const [faults, setFaults] = useState<Part["faults"]>([]);
  const [problem, setProblem] = useState<Problem>();
  useEffect(() => {
    const abort = new AbortController();
    const run = async () => {
      let position = "";
      do {
        const found: Part = await change("post", PATH, {
          path,
          body: { contents: true, position },
          signal: abort.signal,
        });
        setPart(found);
        setFaults((before) => [...before, ...found.faults]);
        position = found.position;
      } while (position !== "");
    };
    run().catch((error) => abort.signal.aborted || setProblem(toProblem(error)));
    return () => abort.abort();
  }, [job.id, step]);
  return (
    <Dialog title={`Verify step ${step}`} onClose={props.onClose}>
      <div aria-live="polite">
        {problem ? <ProblemText problem={problem} /> : <Progress part={part} faults={faults} />}
      </div>
      {faults.length > 0 && (
        <ul class="data-faults">
          {faults.map((fault) => (
            <li key={fault.name}>
              <code>{fault.name}</code> {fault.problem}
            </li>
          ))}
        </ul>
      )}
      <CommandBlock
        commands={[commandText("regroup", "verify", `${job.id}@${step}`)]}
        curl={curlText({ method: "post", path: PATH, values: path })}
      />
    </Dialog>
  );
}

function Progress({ part, faults }: { part: Part | undefined; faults: Part["faults"] }) {
  if (part === undefined) return <p>Reading the manifest…</p>;
  const bytes = `${bytesText(part.verified_bytes)} of ${bytesText(part.size_bytes)}`;
  if (!part.is_complete) {
    return (
      <p>
        <progress class="data-progress" max={part.size_bytes} value={part.verified_bytes} aria-label="Verified bytes" />
        {bytes} read ({percentText(part.verified_bytes / part.size_bytes)})
      </p>
    );
  }
  if (faults.length === 0) {
    return (
      <p class="notice good">
        Intact: {countText(part.files, "file")} with {bytesText(part.size_bytes)} have the sizes and the checksums of
        the manifest. A job can load this checkpoint.
      </p>
    );
  }
  return (
    <p class="notice error">
      Damaged: {countText(faults.length, "file")} of {part.files} differ from the manifest. Use another checkpoint.
    </p>
  );
}

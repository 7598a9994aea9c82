/** Parts of the memory of the fullest device: predicted, beside the measured peak. */

import type { Schema } from "../../../api/types";
import { ShareBar } from "../../../components/share-bar";
import { bytesText, percentText } from "../../../text/numbers";
import { durationText } from "../../../text/time";

const TIME_NAMES: Record<string, string> = {
  matmul: "matrix products",
  attention: "attention",
  memory: "norms and activations",
  launch: "kernel launches",
  tensor: "tensor parallel",
  context: "context parallel",
  pipeline: "sends between stages",
  bubble: "pipeline bubble",
  data: "data parallel",
  optimizer: "optimizer",
  other: "fixed cost",
};

export function Memory({ sizes, job }: { sizes: Schema<"JobSizes">; job: Schema<"Job"> }) {
  const current = sizes.sizes.find((each) => JSON.stringify(each.layout) === JSON.stringify(sizes.current));
  const shown = current ?? sizes.sizes[0];
  const prediction = shown?.prediction;
  return (
    <section class="card" aria-labelledby="layout-memory-title">
      <h2 id="layout-memory-title">Memory and time of a device</h2>
      {!prediction ? (
        <p class="quiet">
          {job.peak_bytes ? `The peak of a rank is ${bytesText(job.peak_bytes)}. ` : ""}
          No prediction{sizes.why_not ? `: ${sizes.why_not}` : ""}.
        </p>
      ) : (
        <>
          <p>
            {bytesText(prediction.peak_bytes)} of {bytesText(prediction.capacity_bytes)} predicted (
            {percentText(prediction.peak_bytes / prediction.capacity_bytes)})
            {job.peak_bytes ? `, ${bytesText(job.peak_bytes)} measured` : ""}
          </p>
          <ShareBar label="Parts of the memory" shares={sharesOf(prediction.memory_parts_bytes, bytesText)} />
          <h3 class="layout-second">Step of {durationText(prediction.step_s)} predicted</h3>
          <ShareBar
            label="Parts of the step"
            shares={sharesOf(prediction.time_parts_s, durationText).map((each) => ({
              ...each,
              label: TIME_NAMES[each.label] ?? each.label,
            }))}
          />
        </>
      )}
    </section>
  );
}

function sharesOf(parts: Record<string, number>, text: (value: number) => string) {
  return Object.entries(parts)
    .filter(([name]) => name !== "step")
    .sort((one, other) => other[1] - one[1])
    .slice(0, 8)
    .map(([label, value], index) => ({ label, value, text: text(value), series: index + 1 }));
}

/** Predicted beside measured values of each generation. */

import type { Schema } from "../../../api/types";
import { ScrollBox } from "../../../components/scroll-box";
import { bytesText, percentText } from "../../../text/numbers";
import { durationText } from "../../../text/time";

export function Predictions({ plan }: { plan: Schema<"JobPlan"> }) {
  return (
    <section class="card" aria-labelledby="layout-predictions-title">
      <h2 id="layout-predictions-title">Predicted and measured</h2>
      {plan.generations.length === 0 ? (
        <p class="quiet">
          {plan.why_not ? `No prediction: ${plan.why_not}.` : "A prediction appears when the job has ranks."}
        </p>
      ) : (
        <ScrollBox label="Predicted and measured">
          <table>
            <thead>
              <tr>
                <th scope="col" class="number">
                  Generation
                </th>
                <th scope="col" class="number">
                  Ranks
                </th>
                <th scope="col">Device</th>
                <th scope="col" class="number">
                  Step
                </th>
                <th scope="col" class="number">
                  Memory
                </th>
                <th scope="col" class="number">
                  Bubble
                </th>
                <th scope="col">Basis</th>
              </tr>
            </thead>
            <tbody>
              {[...plan.generations].reverse().map((each) => (
                <tr key={each.generation}>
                  <td class="number">{each.generation}</td>
                  <td class="number">{each.ranks}</td>
                  <td>{each.device || "–"}</td>
                  <Pair of={each} name="step_s" text={durationText} />
                  <Pair of={each} name="peak_bytes" text={bytesText} />
                  <Pair of={each} name="bubble" text={percentText} />
                  <td>{each.probe_job_id ? `probe ${each.probe_job_id}` : "hardware table, a rough estimate"}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </ScrollBox>
      )}
    </section>
  );
}

function Pair(props: {
  of: Schema<"Prediction">;
  name: "step_s" | "peak_bytes" | "bubble";
  text: (value: number | null) => string;
}) {
  const { of, name, text } = props;
  const error = of.relative_error[name];
  return (
    <td class="number">
      {text(of.measured[name])}
      {of.predicted[name] !== null && (
        <span class="quiet layout-predicted">
          {text(of.predicted[name])} predicted
          {error !== null && ` (${error > 0 ? "+" : ""}${percentText(error)})`}
        </span>
      )}
    </td>
  );
}

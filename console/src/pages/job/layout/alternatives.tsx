/** Why this layout: the plans that were compared, why others lost, trials, and other places that were considered. */

import type { Schema } from "../../../api/types";
import { ScrollBox } from "../../../components/scroll-box";
import { bytesText, numberText, percentText } from "../../../text/numbers";
import { durationText, timeText } from "../../../text/time";
import { layoutText } from "./mesh";

export function Alternatives(props: { plan: Schema<"JobPlan">; choice: Schema<"Choice"> | null | undefined }) {
  const { plan, choice } = props;
  const report = plan.report;
  return (
    <section class="card" aria-labelledby="layout-why-title">
      <h2 id="layout-why-title">Why this layout</h2>
      {report === null ? (
        <p class="quiet">
          The spec sets the layout, so the planner did not choose. With <code>layout: auto</code> it compares layouts
          and explains its choice here.
        </p>
      ) : (
        <>
          <p>
            {report.question}. Chosen at {timeText(plan.planned_s)}: {report.plans[0]?.why}.
          </p>
          <PlanTable report={report} />
          {report.lost.length > 0 && <LostTable report={report} />}
        </>
      )}
      {plan.trials.length > 0 && <Trials plan={plan} />}
      {choice && <Places choice={choice} />}
    </section>
  );
}

function PlanTable({ report }: { report: Schema<"PlanReport"> }) {
  return (
    <ScrollBox label="Plans, the fastest first">
      <table>
        <thead>
          <tr>
            <th scope="col">Layout</th>
            <th scope="col">Settings</th>
            <th scope="col" class="number">
              Step
            </th>
            <th scope="col" class="number">
              MFU
            </th>
            <th scope="col" class="number">
              Memory
            </th>
            <th scope="col" class="number">
              Cost
            </th>
            <th scope="col">Why</th>
          </tr>
        </thead>
        <tbody>
          {report.plans.map((plan, index) => (
            <tr key={`${index}`} aria-current={index === 0 ? "true" : undefined}>
              <td>{layoutText(plan.layout)}</td>
              <td>
                {plan.sharding}, micro-batch {plan.micro_batch}, recompute {plan.checkpointing}
                {plan.layout.pp > 1 && `, ${plan.schedule}`}
              </td>
              <td class="number">{durationText(plan.step_s)}</td>
              <td class="number">{percentText(plan.mfu)}</td>
              <td class="number">
                {bytesText(plan.peak_bytes)} of {bytesText(plan.capacity_bytes)}
              </td>
              <td class="number">{costText(plan)}</td>
              <td class="long">{plan.why}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </ScrollBox>
  );
}

function LostTable({ report }: { report: Schema<"PlanReport"> }) {
  return (
    <>
      <h3 class="layout-second">Other kinds of layouts, and why they lost</h3>
      <ScrollBox label="Other kinds of layouts">
        <table>
          <thead>
            <tr>
              <th scope="col">Kind</th>
              <th scope="col">Layout</th>
              <th scope="col" class="number">
                Step
              </th>
              <th scope="col" class="number">
                Memory
              </th>
              <th scope="col">Why</th>
            </tr>
          </thead>
          <tbody>
            {report.lost.map((each) => (
              <tr key={each.kind}>
                <td>{each.kind}</td>
                <td>{layoutText(each.layout)}</td>
                <td class="number">{each.fits ? durationText(each.step_s) : "does not fit"}</td>
                <td class="number">{bytesText(each.peak_bytes)}</td>
                <td class="long">{each.why}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </ScrollBox>
    </>
  );
}

function Trials({ plan }: { plan: Schema<"JobPlan"> }) {
  return (
    <>
      <h3 class="layout-second">Layouts that ran for some steps</h3>
      <ScrollBox label="Trials">
        <table>
          <thead>
            <tr>
              <th scope="col">Layout</th>
              <th scope="col" class="number">
                Predicted
              </th>
              <th scope="col" class="number">
                Measured
              </th>
            </tr>
          </thead>
          <tbody>
            {plan.trials.map((each, index) => (
              <tr key={`${index}`}>
                <td>{layoutText(each.layout)}</td>
                <td class="number">{durationText(each.predicted_s)}</td>
                <td class="number">{each.measured_s === null ? each.why : durationText(each.measured_s)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </ScrollBox>
      {plan.kept_why && <p>{plan.kept_why}</p>}
    </>
  );
}

function Places({ choice }: { choice: Schema<"Choice"> }) {
  return (
    <>
      <h3 class="layout-second">Why these nodes</h3>
      <p>
        All ranks are inside {choice.inside}.{choice.rejected.length === 0 && " No other place was considered."}
      </p>
      {choice.rejected.length > 0 && (
        <ul>
          {choice.rejected.map((each) => (
            <li key={each.what}>
              <b>{each.what}</b>: {each.why}
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

function costText(plan: Schema<"Plan">): string {
  if (plan.cost_per_billion_tokens !== null) return `${numberText(plan.cost_per_billion_tokens, 3)} per 10⁹ tokens`;
  const devices = Object.values(plan.layout).reduce((product, degree) => product * degree, 1);
  return `${durationText(plan.step_s * devices)} of devices`;
}

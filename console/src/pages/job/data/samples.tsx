/** The ledger of samples as numbers, with a verdict in one sentence. */

import type { Schema } from "../../../api/types";
import { ScrollBox } from "../../../components/scroll-box";
import { Stat } from "../../../components/stat";
import { countText, numberText } from "../../../text/numbers";

interface Range {
  generation: number;
  first: number;
  last: number;
}

export function Samples(props: {
  ledger: Schema<"Ledger">;
  generations: readonly Schema<"Generation">[];
  job: Schema<"Job">;
}) {
  const { ledger, job } = props;
  const ranges = rangesOf(props.generations, job.step);
  return (
    <section class="card" aria-labelledby="data-samples-title">
      <h2 id="data-samples-title">Samples</h2>
      <p class={`notice ${ledger.steps === 0 ? "" : ledger.exact ? "good" : "error"}`}>{verdictText(ledger)}</p>
      {ledger.problems.length > 0 && (
        <ul>
          {ledger.problems.map((problem) => (
            <li key={problem}>{problem}</li>
          ))}
        </ul>
      )}
      <div class="stats data-stats">
        <Stat label="Samples used">{numberText(ledger.samples, 15)}</Stat>
        <Stat label="Lost" note={ledger.exact ? "" : "see the reasons above"}>
          {ledger.exact ? 0 : "unknown"}
        </Stat>
        <Stat label="Used twice" note={ledger.exact ? "" : "see the reasons above"}>
          {ledger.exact ? 0 : "unknown"}
        </Stat>
        <Stat label="Committed steps">{numberText(ledger.steps, 15)}</Stat>
        <Stat label="Repeated steps" note="their first results do not count">
          {numberText(ledger.superseded, 15)}
        </Stat>
        <Stat label="Digest of the samples" note="equal digests: the same samples">
          <code>{ledger.samples_hash}</code>
        </Stat>
      </div>
      {ranges.length > 0 && (
        <details>
          <summary>Steps by generation</summary>
          <ScrollBox label="Steps by generation">
            <table>
              <thead>
                <tr>
                  <th scope="col" class="number">
                    Generation
                  </th>
                  <th scope="col">Committed steps</th>
                  <th scope="col" class="number">
                    Count
                  </th>
                </tr>
              </thead>
              <tbody>
                {ranges.map((each) => (
                  <tr key={each.generation}>
                    <td class="number">{each.generation}</td>
                    <td>{each.last < each.first ? "none" : `${each.first} to ${each.last}`}</td>
                    <td class="number">{Math.max(0, each.last - each.first + 1)}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </ScrollBox>
        </details>
      )}
      <p class="quiet">
        <code>regroup ledger {job.id}</code> shows the same.
      </p>
    </section>
  );
}

/** Return one sentence about the ledger. */
export function verdictText(ledger: Schema<"Ledger">): string {
  if (ledger.steps === 0) return "No step is committed yet, so no sample was used.";
  const steps = countText(ledger.steps, "committed step");
  if (!ledger.exact) return `The ledger cannot prove that the ${steps} used each sample once.`;
  const again = ledger.superseded > 0 ? `, although ${countText(ledger.superseded, "step")} ran again` : "";
  return `No sample was lost and none was used twice in ${steps}${again}.`;
}

/** Return the committed steps of each generation, the newest first. */
export function rangesOf(generations: readonly Schema<"Generation">[], step: number): Range[] {
  return generations
    .map((each, index) => {
      // A later generation that starts at an earlier step repeats what came after it.
      const later = generations.slice(index + 1).map((other) => other.start_step);
      return {
        generation: each.number,
        first: each.start_step + 1,
        last: Math.min(step, ...later),
      };
    })
    .reverse();
}

/** How to rehearse failures. The results are files: `regroup chaos` runs a service of its own, which this server does not see. */

const COMMANDS: readonly (readonly [string, string])[] = [
  ["regroup chaos list", "shows the scenarios"],
  [
    "regroup chaos run --all --json rehearsal.json",
    "injects each fault once, compares with a run without faults, and writes the verdicts",
  ],
  ["regroup chaos soak --minutes 20", "trains with a fault about every 20 s, and prints the goodput"],
  ["regroup chaos detectors", "disables one detector at a time, to prove that each is needed"],
];

export function Rehearsals() {
  return (
    <section class="card" aria-labelledby="rehearsals">
      <h2 id="rehearsals">Chaos rehearsals</h2>
      <p>
        A rehearsal injects faults into a local service that the command starts and stops, and checks the invariants
        after each recovery. This server stores no verdicts: they are in the file that the command writes.
      </p>
      <dl class="reliability-commands">
        {COMMANDS.map(([command, effect]) => (
          <div key={command}>
            <dt>
              <code>{command}</code>
            </dt>
            <dd>{effect}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

/** What if: the queue of now in the simulator, with other nodes, quotas or jobs. */

import { useEffect, useState } from "preact/hooks";
import { change } from "../../api/client";
import type { Schema } from "../../api/types";
import { CommandBlock } from "../../components/command-block";
import { PageHeader } from "../../components/page-header";
import { ResourceView } from "../../components/resource-view";
import { useResource } from "../../state/resource";
import { query } from "../../state/router";
import { curlText } from "../../text/commands";
import { ScenarioForm } from "./form";
import { Result } from "./result";
import { commandOf, requestOf, type Scenario, scenarioOf } from "./scenario";
import "./what-if.css";

const PAUSE_MS = 400;

export default function WhatIfPage() {
  const scenario = scenarioOf(query.value);
  const request = requestOf(scenario);
  return (
    <>
      <PageHeader
        title="What if"
        subtitle="The queue of now, simulated with and without a change. Nothing is changed."
      />
      <ScenarioForm scenario={scenario} />
      {typeof request === "string" ? (
        <p class="notice error" role="alert">
          {request}
        </p>
      ) : (
        <Simulation scenario={scenario} request={request} />
      )}
    </>
  );
}

function Simulation({ scenario, request }: { scenario: Scenario; request: Schema<"WhatIfRequest"> }) {
  const text = useSettled(JSON.stringify(request));
  const result = useResource(
    (signal) => change("post", "/v1/what-if", { body: JSON.parse(text) as Schema<"WhatIfRequest">, signal }),
    [text],
  );
  return (
    <>
      <ResourceView resource={result} label="Simulating the queue">
        {(found) => (
          <Result
            result={found}
            isBusy={result.isLoading.value || text !== JSON.stringify(request)}
            cancelled={scenario.cancel}
            assumed={scenario.assumed || "1h"}
          />
        )}
      </ResourceView>
      <CommandBlock
        commands={[commandOf(scenario)]}
        curl={curlText({ method: "post", path: "/v1/what-if", body: request })}
      />
    </>
  );
}

/** Return a text after it has stayed the same for a moment, so that typing causes one request. */
function useSettled(text: string): string {
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return settled;
}

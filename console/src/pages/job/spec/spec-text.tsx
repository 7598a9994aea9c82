/** The spec as YAML with colours. Fields that have their default are hidden until asked for. */

import { useState } from "preact/hooks";
import { get } from "../../../api/client";
import type { Schema } from "../../../api/types";
import { useResource } from "../../../state/resource";
import { query, setQuery } from "../../../state/router";
import { toYaml } from "../../../text/yaml";
import { withoutDefaults } from "./defaults";

export function SpecText({ spec }: { spec: Schema<"JobSpec"> }) {
  const isAll = query.value.get("defaults") === "true";
  const [isCopied, setCopied] = useState(false);
  const schema = useResource((signal) => get("/v1/spec/schema", { signal }), []);
  const known = schema.data.value as Record<string, unknown> | undefined;
  const own = known === undefined ? spec : withoutDefaults(spec, known);
  const text = toYaml(isAll ? spec : own);
  const chosen = new Set(isAll ? toYaml(own).split("\n") : []);
  const copy = () => navigator.clipboard.writeText(text).then(() => setCopied(true));
  return (
    <>
      <div class="row spec-options">
        <label class="check">
          <input type="checkbox" checked={isAll} onChange={() => setQuery({ defaults: isAll ? undefined : "true" })} />
          Show defaults
        </label>
        <button type="button" onClick={() => void copy()}>
          {isCopied ? "Copied" : "Copy as YAML"}
        </button>
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: long lines scroll with the keyboard */}
      <section class="spec-yaml" tabIndex={0} aria-label="Spec as YAML">
        <pre>
          {text
            .trimEnd()
            .split("\n")
            .map((line, index) => (
              <YamlLine key={`${index}`} line={line} isDim={isAll && known !== undefined && !chosen.has(line)} />
            ))}
        </pre>
      </section>
    </>
  );
}

function YamlLine({ line, isDim }: { line: string; isDim: boolean }) {
  const match = /^(\s*(?:- )?)("[^"]*"|[\w./@-]+)(:)(.*)$/.exec(line);
  if (match === null) {
    return (
      <span class={isDim ? "dim" : ""}>
        {line}
        {"\n"}
      </span>
    );
  }
  const value = match[4] ?? "";
  return (
    <span class={isDim ? "dim" : ""}>
      {match[1]}
      <span class="key">{match[2]}</span>
      {match[3]}
      <span class={kindOf(value)}>{value}</span>
      {"\n"}
    </span>
  );
}

function kindOf(value: string): string {
  const text = value.trim();
  if (/^(true|false|null)$/.test(text)) return "word";
  return text !== "" && Number.isFinite(Number(text)) ? "figure" : "text";
}

/** The window of time of a page, in its address. */

import { query, setQuery } from "../state/router";
import { dayText } from "../text/time";
import type { TimeWindow, WindowName } from "../text/window";
import { WINDOWS } from "../text/window";
import { SelectField, TextField } from "./field";

export function WindowPicker({ shown }: { shown: TimeWindow }) {
  const options = Object.entries(WINDOWS) as [WindowName, string][];
  const until = shown.to_s === undefined ? Date.now() / 1000 : shown.to_s - 1;
  const choose = (name: WindowName) =>
    setQuery(
      name === "custom"
        ? { window: name, from: dayText(shown.from_s), to: dayText(until) }
        : { window: name, from: undefined, to: undefined },
    );
  return (
    <>
      <SelectField label="Window" value={shown.name} options={options} onChange={choose} />
      {shown.name === "custom" && (
        <>
          <TextField
            label="First day"
            type="date"
            value={query.value.get("from") ?? dayText(shown.from_s)}
            onInput={(from) => setQuery({ from })}
          />
          <TextField
            label="Last day"
            type="date"
            value={query.value.get("to") ?? ""}
            onInput={(to) => setQuery({ to })}
          />
        </>
      )}
    </>
  );
}

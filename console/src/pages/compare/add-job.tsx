/** A field that adds a job by its name or id. */

import { useState } from "preact/hooks";
import { get } from "../../api/client";
import { toProblem } from "../../api/problem";
import { useResource } from "../../state/resource";
import { navigate, query } from "../../state/router";

export function AddJob({ ids, isFull }: { ids: readonly string[]; isFull: boolean }) {
  const [problem, setProblem] = useState("");
  const [text, setText] = useState("");
  const recent = useResource((signal) => get("/v1/jobs", { query: { page_size: 50 }, signal }), []);
  const add = async (event: Event) => {
    event.preventDefault();
    const name = text.trim();
    if (name === "") return;
    try {
      const project = recent.data.value?.jobs.find((job) => job.name === name)?.project;
      const found = await get("/v1/jobs/{job}", {
        path: { job: name },
        query: project === undefined ? {} : { project },
      });
      setProblem(ids.includes(found.id) ? `${found.name} is already shown` : "");
      setText("");
      showJobs([...new Set([...ids, found.id])]);
    } catch (error) {
      setProblem(toProblem(error).message);
    }
  };
  return (
    <form class="row compare-add" onSubmit={add}>
      <label>
        Add a job
        <input
          list="compare-recent"
          value={text}
          disabled={isFull}
          placeholder="name or id"
          autocomplete="off"
          onInput={(event) => setText(event.currentTarget.value)}
        />
      </label>
      <datalist id="compare-recent">
        {recent.data.value?.jobs.map((job) => (
          <option key={job.id} value={job.name} />
        ))}
      </datalist>
      <button type="submit" disabled={isFull}>
        Add
      </button>
      {isFull && <span class="quiet">Remove a job to add another one.</span>}
      {problem !== "" && (
        <span class="compare-problem" role="alert">
          {problem}
        </span>
      )}
    </form>
  );
}

/** Show these jobs; the other values of the address stay. */
export function showJobs(ids: readonly string[]): void {
  const values = new URLSearchParams(query.value);
  values.delete("job");
  for (const id of ids) values.append("job", id);
  navigate(`compare?${values}`, { replace: true });
}

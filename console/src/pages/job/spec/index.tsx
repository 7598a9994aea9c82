/** Spec and history of a job: what was asked for, what differs from another job, what happened, who changed it. */

import { useState } from "preact/hooks";
import { ResubmitDialog } from "../../../components/resubmit-dialog";
import { EmptyState } from "../../../components/states";
import { href } from "../../../state/router";
import { useJob } from "../job-context";
import { Audit } from "./audit";
import { Differences } from "./differences";
import { Events } from "./events";
import { Failure } from "./failure";
import { RawJob } from "./raw-job";
import { SpecText } from "./spec-text";
import "./spec.css";

export default function SpecTab() {
  const { job } = useJob();
  const [isOpen, setOpen] = useState(false);
  return (
    <div class="spec-tab">
      <Failure job={job} />
      {job.spec === null ? (
        <EmptyState title="The stored spec is damaged">
          <p>It cannot be shown. The events below are complete.</p>
        </EmptyState>
      ) : (
        <>
          <section class="card" aria-labelledby="spec-title">
            <header class="row spec-header">
              <h2 id="spec-title">Spec</h2>
              <span class="row">
                <button type="button" class="primary" onClick={() => setOpen(true)}>
                  Clone and edit
                </button>
                <a class="button" href={href("submit", { from: job.id })}>
                  Open in the editor
                </a>
              </span>
            </header>
            <SpecText spec={job.spec} />
          </section>
          <Differences job={job} />
        </>
      )}
      <Events job={job} />
      <Audit job={job} />
      <RawJob job={job} />
      {isOpen && job.spec && <ResubmitDialog job={job} spec={job.spec} onClose={() => setOpen(false)} />}
    </div>
  );
}

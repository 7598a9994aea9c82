import { PageHeader } from "../../components/page-header";
import { EmptyState } from "../../components/states";
import { href } from "../../state/router";

export default function MissingPage() {
  return (
    <>
      <PageHeader title="Not found" />
      <EmptyState title="The console has no page with this address">
        <p>
          Open the <a href={href("jobs")}>list of jobs</a>.
        </p>
      </EmptyState>
    </>
  );
}

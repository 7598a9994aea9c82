import { PageHeader } from "../../components/page-header";

export default function JobsPage() {
  return <PageHeader title="Jobs" />;
}

import { PageHeader } from "../../components/page-header";

export default function ReliabilityPage() {
  return <PageHeader title="Reliability" />;
}

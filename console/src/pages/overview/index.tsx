import { PageHeader } from "../../components/page-header";

export default function OverviewPage() {
  return <PageHeader title="Overview" />;
}

import { PageHeader } from "../../components/page-header";

export default function ClusterPage() {
  return <PageHeader title="Cluster" />;
}

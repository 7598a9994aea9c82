import { PageHeader } from "../../components/page-header";

export default function ComparePage() {
  return <PageHeader title="Compare" />;
}

import { PageHeader } from "../../components/page-header";

export default function UsagePage() {
  return <PageHeader title="Usage" />;
}

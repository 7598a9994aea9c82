import { PageHeader } from "../../components/page-header";

export default function AdminPage() {
  return <PageHeader title="Admin" />;
}

/** Who may do what, what the server tells others, who changed what, and the server itself. */

import { LazyView } from "../../components/lazy-view";
import { PageHeader } from "../../components/page-header";
import { Tabs } from "../../components/tabs";
import { TABS } from "./tabs";
import "./admin.css";

export default function AdminPage({ values }: { values: Record<string, string> }) {
  const tab = TABS.find((each) => each.id === values.tab) ?? TABS[0];
  return (
    <>
      <PageHeader title="Admin" />
      <Tabs base="admin" tabs={TABS} current={tab.id} />
      <LazyView key={tab.id} load={tab.load} values={values} />
    </>
  );
}

/** The list of keys, opened with `?`. */

import { PAGES } from "../pages";
import { isHelpOpen, pageKeys } from "../state/keys";
import { Dialog } from "./dialog";

export function KeyboardHelp() {
  if (!isHelpOpen.value) return null;
  const close = () => {
    isHelpOpen.value = false;
  };
  return (
    <Dialog title="Keys" onClose={close}>
      <dl class="keys">
        {PAGES.filter((each) => each.nav).map((each) => (
          <Row key={each.pattern} keys={`g ${each.nav?.key}`} label={each.nav?.label ?? ""} />
        ))}
        <Row keys="/" label="Go to the filter" />
        <Row keys="↓ ↑" label="Choose a row of the table with the focus" />
        <Row keys="← →" label="Go to the next tab, if a tab has the focus" />
        {pageKeys.value.map((each) => (
          <Row key={each.key} keys={each.key} label={each.label} />
        ))}
      </dl>
    </Dialog>
  );
}

function Row({ keys, label }: { keys: string; label: string }) {
  return (
    <div>
      <dt>
        <kbd>{keys}</kbd>
      </dt>
      <dd>{label}</dd>
    </div>
  );
}

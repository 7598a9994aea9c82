/** Devices by what they do. */

import type { Schema } from "../../api/types";
import { ShareBar } from "../../components/share-bar";
import { href } from "../../state/router";
import { countText, numberText } from "../../text/numbers";

const CLASSES = [
  ["productive", 2],
  ["starting", 1],
  ["recovering", 3],
  ["held", 5],
  ["idle", 8],
  ["closed", 4],
] as const;

export function DeviceCard({ devices }: { devices: Schema<"DeviceClasses"> }) {
  const unit = devices.kind === "cuda" ? "GPU" : "core";
  return (
    <section class="card">
      <h2>
        <a href={href("cluster")}>Devices</a>
      </h2>
      {devices.total === 0 ? (
        <p class="quiet">No node has joined yet. Add nodes to the Ray cluster.</p>
      ) : (
        <>
          <p class="quiet">{countText(devices.total, unit)} of all clusters, by what they do now</p>
          <ShareBar
            label={`${countText(devices.total, unit)} by class`}
            shares={CLASSES.map(([name, series]) => ({
              label: name,
              value: devices[name],
              text: numberText(devices[name]),
              series,
            }))}
          />
        </>
      )}
    </section>
  );
}

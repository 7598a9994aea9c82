/** A field with its label above it. */

import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

/** Show any field; `children` gets the id that the field must have. */
export function Field(props: { label: string; note?: string; children: (id: string) => ComponentChildren }) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      {props.children(id)}
      {props.note && <small class="quiet">{props.note}</small>}
    </div>
  );
}

/** A line of text. `options` are proposed while the person types. */
export function TextField(props: {
  label: string;
  value: string;
  onInput: (value: string) => void;
  options?: readonly string[];
  type?: "text" | "date" | "password";
  placeholder?: string;
  note?: string;
  isFilter?: boolean;
}) {
  const list = useId();
  const kind: object = { type: props.type ?? "text", ...(props.options ? { list } : {}) };
  return (
    <Field label={props.label} {...(props.note === undefined ? {} : { note: props.note })}>
      {(id) => (
        <>
          <input
            {...kind}
            id={id}
            value={props.value}
            placeholder={props.placeholder ?? ""}
            autocomplete="off"
            spellcheck={false}
            data-filter={props.isFilter ? "" : undefined}
            onInput={(event) => props.onInput(event.currentTarget.value)}
          />
          {props.options && (
            <datalist id={list}>
              {props.options.map((each) => (
                <option key={each} value={each} />
              ))}
            </datalist>
          )}
        </>
      )}
    </Field>
  );
}

/** A choice from a list of values with their texts. */
export function SelectField<T extends string>(props: {
  label: string;
  value: T;
  options: readonly (readonly [T, string])[];
  onChange: (value: T) => void;
}) {
  return (
    <Field label={props.label}>
      {(id) => (
        <select id={id} value={props.value} onChange={(event) => props.onChange(event.currentTarget.value as T)}>
          {props.options.map(([value, text]) => (
            <option key={value} value={value}>
              {text}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

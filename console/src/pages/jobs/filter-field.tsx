/** The field of the filter, with completion of its keys and values, and what is wrong in it. */

import { useId, useRef, useState } from "preact/hooks";
import { completeFilter, type KnownValues, parseFilter } from "./filter";

const MOST_SHOWN = 12;
/** Pause in the input after which the filter takes effect. */
const PAUSE_MS = 250;

export function FilterField(props: { value: string; known: KnownValues; onChange: (value: string) => void }) {
  const { value, known, onChange } = props;
  const field = useRef<HTMLInputElement>(null);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const list = useId();
  const [text, setText] = useState(value);
  const [given, setGiven] = useState(value);
  const [caret, setCaret] = useState(0);
  const [isOpen, setOpen] = useState(false);
  const [chosen, setChosen] = useState(-1);
  if (given !== value) {
    // The address has another filter: a link, a saved view, or the browser's buttons.
    setGiven(value);
    if (text.trim() !== value) setText(value);
  }
  const options = isOpen ? completeFilter(text, caret, known).slice(0, MOST_SHOWN) : [];
  const { faults } = parseFilter(text);
  const write = (next: string, at: number) => {
    setText(next);
    setCaret(at);
    setChosen(-1);
    setOpen(true);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => apply(next), PAUSE_MS);
  };
  const apply = (next: string) => {
    clearTimeout(timer.current);
    setGiven(next.trim());
    onChange(next.trim());
  };
  const complete = (index: number) => {
    const option = options[index];
    if (option === undefined) return;
    write(option.text, option.caret);
    requestAnimationFrame(() => field.current?.setSelectionRange(option.caret, option.caret));
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined && options.length > 0) setChosen((chosen + step + options.length) % options.length);
    else if (event.key === "Enter" && chosen >= 0) complete(chosen);
    else if (event.key === "Enter") {
      apply(text);
      field.current?.blur();
    } else if (event.key === "Escape" && !isOpen) field.current?.blur();
    else if (event.key === "Escape") setOpen(false);
    else return;
    event.preventDefault();
  };
  const follow = () => setCaret(field.current?.selectionStart ?? text.length);
  return (
    <div class="jobs-filter">
      <label>
        <span class="visually-hidden">Filter</span>
        <input
          ref={field}
          type="text"
          data-filter
          // biome-ignore lint/a11y/noRedundantRoles: only with a list of the browser has it this role by itself
          role="combobox"
          list={undefined}
          aria-label="Filter"
          aria-expanded={options.length > 0}
          aria-controls={list}
          aria-autocomplete="list"
          aria-activedescendant={chosen >= 0 ? `${list}-${chosen}` : undefined}
          aria-invalid={faults.length > 0 && !isOpen}
          autocomplete="off"
          spellcheck={false}
          placeholder="state:RUNNING project:vision label:team=nlp author:me"
          value={text}
          onInput={(event) => write(event.currentTarget.value, event.currentTarget.selectionStart ?? 0)}
          onFocus={() => {
            follow();
            setOpen(true);
          }}
          onClick={follow}
          onKeyUp={follow}
          onBlur={() => setOpen(false)}
          onKeyDown={onKeyDown}
        />
      </label>
      <div id={list} role="listbox" aria-label="Completions" hidden={options.length === 0}>
        {options.map((option, index) => (
          <div
            key={option.label}
            id={`${list}-${index}`}
            role="option"
            tabIndex={-1}
            aria-selected={index === chosen}
            onMouseDown={(event) => {
              event.preventDefault(); // the field keeps the focus
              complete(index);
            }}
          >
            {option.label}
          </div>
        ))}
      </div>
      {faults.length > 0 && !(isOpen && options.length > 0) && (
        <ul class="jobs-faults" aria-label="Faults of the filter">
          {faults.map((fault) => (
            <li key={fault.part}>
              <code>{fault.part}</code> {fault.message}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

import { useId, useState, type KeyboardEvent, type ReactNode } from "react";

export interface Item {
  readonly key: string;
  readonly label: string;
  readonly aside?: ReactNode;
  readonly choose: () => void;
}

interface Props {
  readonly label: string;
  readonly listLabel: string;
  readonly none: string;
  readonly find: (words: string) => readonly Item[];
  readonly close: () => void;
}

/** A field and the list of what it finds; the arrow keys walk through the list while the field keeps the focus. */
export function SearchList({ label, listLabel, none, find, close }: Props) {
  const [words, setWords] = useState("");
  const [at, setAt] = useState(0);
  const list = useId();
  const items = find(words);
  const chosen = Math.min(at, items.length - 1);
  const key = (event: KeyboardEvent) => {
    if (event.key === "Escape") close();
    else if (event.key === "Enter") items[chosen]?.choose();
    else if (event.key === "ArrowDown") setAt(Math.min(chosen + 1, items.length - 1));
    else if (event.key === "ArrowUp") setAt(Math.max(chosen - 1, 0));
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div className="graph-search">
      <input
        type="search"
        role="combobox"
        aria-label={label}
        aria-controls={list}
        aria-expanded="true"
        aria-autocomplete="list"
        {...(items[chosen] ? { "aria-activedescendant": `${list}-${chosen}` } : {})}
        placeholder={label}
        autoFocus
        value={words}
        onChange={(event) => {
          setWords(event.target.value);
          setAt(0);
        }}
        onKeyDown={key}
      />
      <div id={list} role="listbox" aria-label={listLabel} className="nowheel">
        {items.map((item, index) => (
          <Option key={item.key} id={`${list}-${index}`} item={item} chosen={index === chosen} />
        ))}
      </div>
      {items.length === 0 && <p className="quiet">{none}</p>}
    </div>
  );
}

function Option({ id, item, chosen }: { id: string; item: Item; chosen: boolean }) {
  return (
    // The keys are the field's, which keeps the focus.
    <div
      id={id}
      role="option"
      aria-selected={chosen}
      tabIndex={-1}
      ref={(element) => {
        if (chosen) element?.scrollIntoView({ block: "nearest" });
      }}
      onClick={item.choose}
    >
      <span>{item.label}</span>
      {item.aside}
    </div>
  );
}

import type { Records } from "../api/records";
import { useSay } from "../language/say";
import { SelectField } from "../parts/SelectField";
import type { Filter } from "./filter";

const KINDS = ["inference", "train", "serve", "ceiling"] as const;

interface Props {
  records: Records;
  filter: Filter;
  onChange: (filter: Filter) => void;
}

export function FilterBar({ records, filter, onChange }: Props) {
  const say = useSay();
  return (
    <div className="filters" role="search" aria-label={say("measure.filter")}>
      <label className="field">
        <span>{say("measure.filter.text")}</span>
        <input
          type="search"
          value={filter.text}
          onChange={(event) => {
            onChange({ ...filter, text: event.target.value });
          }}
        />
      </label>
      <SelectField
        name="kind"
        label={say("measure.kind")}
        value={filter.kind}
        options={[
          ["", say("measure.all")],
          ...KINDS.map((kind) => [kind, say(`measure.kind.${kind}`)] as const),
        ]}
        onChange={(kind) => {
          onChange({ ...filter, kind });
        }}
      />
      <SelectField
        name="run"
        label={say("measure.run")}
        value={filter.run}
        options={[["", say("measure.all")], ...records.runs.map(({ run }) => [run, run] as const)]}
        onChange={(run) => {
          onChange({ ...filter, run });
        }}
      />
    </div>
  );
}

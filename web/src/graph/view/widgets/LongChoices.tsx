import { useMemo } from "react";

import { useSay } from "../../../language/say";
import { Floating } from "../Floating";
import { SearchList } from "../SearchList";

interface Props {
  readonly name: string;
  readonly choices: readonly string[];
  readonly chosen: string;
  readonly under: DOMRect;
  readonly choose: (choice: string | null) => void;
}

export function LongChoices({ name, choices, chosen, under, choose }: Props) {
  const say = useSay();
  const at = useMemo(() => ({ x: under.left, y: under.bottom + 2 }), [under]);
  const find = (words: string) =>
    choices
      .filter((choice) =>
        words
          .toLowerCase()
          .split(/\s+/)
          .every((word) => choice.toLowerCase().includes(word)),
      )
      .map((choice) => ({
        key: choice,
        label: choice,
        aside: choice === chosen ? <span aria-hidden="true">✓</span> : null,
        choose: () => {
          choose(choice);
        },
      }));
  return (
    <Floating
      at={at}
      label={name}
      close={() => {
        choose(null);
      }}
    >
      <SearchList
        label={say("graph.choose.search")}
        listLabel={name}
        none={say("graph.search.none")}
        find={find}
        close={() => {
          choose(null);
        }}
      />
    </Floating>
  );
}

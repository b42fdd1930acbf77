/** What every widget is given. */
import type { InputDeclaration } from "../../model/catalogue";
import type { Json } from "../../model/json";

export interface WidgetProps {
  readonly node: string;
  readonly input: InputDeclaration;
  readonly value: Json | undefined;
  /** The accessible name: input and node. */
  readonly name: string;
  readonly change: (value: Json) => void;
  /** The spell of changes is over: what follows is undone on its own. */
  readonly settle: () => void;
}

import { useSay } from "../../../language/say";
import type { InputDeclaration } from "../../model/catalogue";
import type { GraphNode } from "../../model/document";
import { setValue } from "../../model/edits";
import type { Json } from "../../model/json";
import { useSession } from "../session-context";
import { BooleanWidget } from "../widgets/BooleanWidget";
import { ChoiceWidget } from "../widgets/ChoiceWidget";
import { NumberWidget } from "../widgets/NumberWidget";
import { PictureWidget } from "../widgets/PictureWidget";
import { SeedControl } from "../widgets/SeedControl";
import { TextWidget } from "../widgets/TextWidget";
import type { WidgetProps } from "../widgets/widget";

const KINDS = {
  integer: NumberWidget,
  float: NumberWidget,
  text: TextWidget,
  choice: ChoiceWidget,
  boolean: BooleanWidget,
};

interface Props {
  readonly node: GraphNode;
  readonly title: string;
  readonly input: InputDeclaration;
}

/** The field in which an input's value is entered. */
export function Widget({ node, title, input }: Props) {
  const say = useSay();
  const { dispatch } = useSession();
  if (input.widget === null) return null;
  const props: WidgetProps = {
    node: node.id,
    input,
    value: node.values[input.name],
    name: say("graph.value", { input: input.name, node: title }),
    change: (value: Json) => {
      const edit = (document: Parameters<typeof setValue>[0]) =>
        setValue(document, node.id, input.name, value);
      dispatch({ type: "edit", edit, tag: `value:${node.id}:${input.name}` });
    },
    settle: () => {
      dispatch({ type: "sealed" });
    },
  };
  const Kind = input.upload ? PictureWidget : KINDS[input.widget];
  const control = node.controls[input.name];
  return (
    <>
      <Kind {...props} />
      {input.seed && control !== undefined && <SeedControl {...props} title={title} control={control} />}
    </>
  );
}

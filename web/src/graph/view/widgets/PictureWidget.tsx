import { useRef } from "react";

import { useSay } from "../../../language/say";
import { asText } from "../../model/json";
import { inputAddress } from "../../run/asking";
import { useSession } from "../session-context";
import { ChoiceWidget } from "./ChoiceWidget";
import type { WidgetProps } from "./widget";

/** A picture on the server: chosen from those there, or uploaded, with a small view of it. */
export function PictureWidget(props: WidgetProps) {
  const { node, input, value } = props;
  const say = useSay();
  const { upload, dispatch } = useSession();
  const picker = useRef<HTMLInputElement>(null);
  const chosen = asText(value);
  const send = (file: File | undefined) => {
    if (!file) return;
    upload(node, input.name, file).catch((error: unknown) => {
      const why = error instanceof Error ? error.message : String(error);
      dispatch({ type: "notice", notice: say("graph.upload.failed", { why }) });
    });
  };
  return (
    // Dropping is a short cut for the button below.
    <div
      className="graph-picture-widget"
      role="group"
      aria-label={props.name}
      onDragOver={(event) => {
        event.preventDefault();
      }}
      onDrop={(event) => {
        // On this widget a picture is an input; anywhere else it is a graph to open.
        event.preventDefault();
        event.stopPropagation();
        send(event.dataTransfer.files[0]);
      }}
    >
      <ChoiceWidget {...props} />
      <button
        type="button"
        onClick={() => {
          picker.current?.click();
        }}
      >
        {say("graph.upload")}
      </button>
      <input
        ref={picker}
        type="file"
        accept="image/*"
        hidden
        aria-label={say("graph.upload")}
        onChange={(event) => {
          send(event.target.files?.[0]);
          event.target.value = "";
        }}
      />
      {input.choices.includes(chosen) && (
        <img
          src={inputAddress(chosen)}
          alt={say("graph.picture.input", { name: chosen })}
          draggable={false}
        />
      )}
    </div>
  );
}

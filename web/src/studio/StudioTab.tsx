import { useSay } from "../language/say";
import { Gallery } from "./Gallery";
import { Queue } from "./Queue";
import { SettingsForm } from "./SettingsForm";
import { Stage } from "./Stage";
import "./studio.css";

/** Describe a picture, see it being made, keep it. */
export function StudioTab() {
  const say = useSay();
  return (
    <div className="studio">
      <h1 className="hidden-text">{say("shell.studio")}</h1>
      <SettingsForm />
      <Stage />
      <aside className="side">
        <Queue />
        <Gallery />
      </aside>
    </div>
  );
}

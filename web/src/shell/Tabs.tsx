import { useSay } from "../language/say";
import { ROOMS, useRoom } from "./route";

/** Links rather than buttons: they can be opened in another tab and remembered. */
export function Tabs() {
  const say = useSay();
  const room = useRoom();
  return (
    <nav className="tabs" aria-label={say("shell.tabs")}>
      {ROOMS.map((name) => (
        <a key={name} href={`#/${name}`} aria-current={name === room ? "page" : undefined}>
          {say(`shell.${name}`)}
        </a>
      ))}
    </nav>
  );
}

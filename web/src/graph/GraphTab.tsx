import { useSay } from "../language/say";

export function GraphTab() {
  const say = useSay();
  return (
    <section className="room">
      <h1>{say("graph.title")}</h1>
    </section>
  );
}

import { useSay } from "../language/say";

export function StudioTab() {
  const say = useSay();
  return (
    <section className="room">
      <h1>{say("studio.title")}</h1>
    </section>
  );
}

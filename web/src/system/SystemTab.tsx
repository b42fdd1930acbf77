import { useSay } from "../language/say";

export function SystemTab() {
  const say = useSay();
  return (
    <section className="room">
      <h1>{say("system.title")}</h1>
    </section>
  );
}

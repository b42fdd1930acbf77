import { useSay } from "../language/say";

export function MeasureTab() {
  const say = useSay();
  return (
    <section className="room">
      <h1>{say("measure.title")}</h1>
    </section>
  );
}

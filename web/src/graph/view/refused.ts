/** Why two sockets cannot be joined, in words. */
import type { Say } from "../../language/say";
import type { Refusal } from "../model/typing";

export function saidRefusal(say: Say, refusal: Refusal): string {
  switch (refusal.reason) {
    case "type":
      return say("graph.refused.type", {
        given: refusal.given,
        wanted: refusal.wanted,
        input: refusal.input,
      });
    case "circle":
      return say("graph.refused.circle", { node: refusal.node });
    case "itself":
      return say("graph.refused.itself");
    case "missing":
      return say("graph.refused.missing");
  }
}

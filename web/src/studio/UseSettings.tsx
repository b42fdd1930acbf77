import { useState } from "react";

import type { JobPicture, PicturesJob } from "../api/jobs";
import { useSay } from "../language/say";
import { change, settingsOf } from "./settings";
import { clearStart, sentWith, startFrom } from "./start";

/** Puts a job's settings into the form, and its start picture where this page has sent it. */
export function UseSettings({ job, picture }: { job: PicturesJob; picture?: JobPicture }) {
  const say = useSay();
  const [said, setSaid] = useState<"" | "studio.use.done" | "studio.use.picture">("");
  const use = () => {
    change(settingsOf(job, picture));
    const given = sentWith(job.id);
    if (given) void startFrom(given.image, "", given.mask);
    else clearStart();
    setSaid(job.request.image && !given ? "studio.use.picture" : "studio.use.done");
  };
  return (
    <>
      <button type="button" onClick={use}>
        {say("studio.use")}
      </button>
      <span role="status" className="quiet small said">
        {said && say(said)}
      </span>
    </>
  );
}

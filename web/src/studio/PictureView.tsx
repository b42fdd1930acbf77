import { useState, type KeyboardEvent } from "react";

import { pictureAddress, type Job, type JobPicture } from "../api/jobs";
import { useStore } from "../connection/store";
import { addressInGraph, isGraphable } from "../jobs/graphable";
import { jobs, remove } from "../jobs/jobs";
import { useSay } from "../language/say";
import { Notice } from "../parts/Notice";
import { useAction } from "../parts/useAction";
import { Details } from "./Details";
import { select } from "./selection";
import { describe, nameOf, neighbour, show, titleOf } from "./shown";
import { startFrom } from "./start";
import { UseSettings } from "./UseSettings";

/** A finished picture, what made it, and what can be done with it. */
export function PictureView({ job, index }: { job: Job; index: number }) {
  const say = useSay();
  const picture = job.pictures[index];
  if (!picture) return null;
  const name = nameOf(job, say("studio.workflow"));
  return (
    <div className="finished">
      {/* Not keyed by job: the buttons keep the focus when the picture changes. */}
      <Frame job={job} index={index} picture={picture} name={name} />
      <p className="caption" tabIndex={0}>
        {name}
      </p>
      <Actions key={job.id} job={job} index={index} picture={picture} name={name} />
      <Details job={job} picture={picture} />
    </div>
  );
}

interface Shown {
  readonly job: Job;
  readonly index: number;
  readonly picture: JobPicture;
  readonly name: string;
}

/** The picture between the ways to those before and after it. */
function Frame({ job, index, picture, name }: Shown) {
  const say = useSay();
  const { all } = useStore(jobs);
  const turns = { before: neighbour(all, job, index, -1), after: neighbour(all, job, index, 1) };
  const keys = (event: KeyboardEvent) => {
    const wanted =
      event.key === "ArrowLeft" ? turns.before : event.key === "ArrowRight" ? turns.after : undefined;
    if (wanted) show(wanted);
  };
  const turn = (to: keyof typeof turns, label: string, sign: string) => (
    <button
      type="button"
      className="plain turn"
      aria-label={label}
      // A button with `disabled` loses the focus, and with it the arrow keys.
      aria-disabled={!turns[to]}
      onKeyDown={keys}
      onClick={() => {
        const wanted = turns[to];
        if (wanted) show(wanted);
      }}
    >
      {sign}
    </button>
  );
  return (
    <div className="frame">
      {turn("before", say("studio.previous"), "‹")}
      <img
        src={pictureAddress(job.id, index)}
        width={picture.width}
        height={picture.height}
        alt={describe(name, picture, say)}
      />
      {turn("after", say("studio.next"), "›")}
    </div>
  );
}

/** What can be done with a picture. */
function Actions({ job, index, picture, name }: Shown) {
  const say = useSay();
  const { run, busy, error } = useAction();
  const [sure, setSure] = useState(false);
  const address = pictureAddress(job.id, index);
  const asStart = async () => {
    const response = await fetch(address);
    await startFrom(await response.blob(), titleOf(name, picture));
  };
  const forget = async () => {
    await remove(job);
    select({ kind: "newest" });
  };
  return (
    <>
      <div className="row">
        {job.kind !== "workflow" && <UseSettings job={job} picture={picture} />}
        <button
          type="button"
          disabled={busy}
          onClick={() => {
            run(asStart);
          }}
        >
          {say("studio.use.as.start")}
        </button>
        {isGraphable(job) && (
          <a className="button" href={addressInGraph(job, index)}>
            {say("studio.open.graph")}
          </a>
        )}
        <a
          className="button"
          href={address}
          download={`${job.id.slice(0, 8)}-${String(picture.seed ?? index)}.png`}
        >
          {say("studio.download")}
        </a>
        <a className="button" href={address} target="_blank" rel="noreferrer">
          {say("studio.open")}
        </a>
        <button
          type="button"
          disabled={busy}
          aria-expanded={sure}
          onClick={() => {
            setSure(!sure);
          }}
        >
          {say("studio.delete")}
        </button>
      </div>
      {sure && (
        <div className="row notice">
          <span>{say("studio.delete.sure", { n: job.pictures.length })}</span>
          <button
            type="button"
            onClick={() => {
              run(forget);
            }}
          >
            {say("studio.delete")}
          </button>
          <button
            type="button"
            onClick={() => {
              setSure(false);
            }}
          >
            {say("studio.cancel")}
          </button>
        </div>
      )}
      <Notice error={error} />
    </>
  );
}

import { useState, type KeyboardEvent } from "react";

import { pictureAddress, type Job } from "../api/jobs";
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
  const { all } = useStore(jobs);
  const { run, busy, error } = useAction();
  const [sure, setSure] = useState(false);
  const picture = job.pictures[index];
  if (!picture) return null;
  const [before, after] = [neighbour(all, job, index, -1), neighbour(all, job, index, 1)];
  const address = pictureAddress(job.id, index);
  const name = nameOf(job, say("studio.workflow"));
  const keys = (event: KeyboardEvent) => {
    const wanted = event.key === "ArrowLeft" ? before : event.key === "ArrowRight" ? after : undefined;
    if (wanted) show(wanted);
  };
  const asStart = async () => {
    const response = await fetch(address);
    await startFrom(await response.blob(), titleOf(name, picture));
  };
  const forget = async () => {
    await remove(job);
    select({ kind: "newest" });
  };
  return (
    <div className="finished">
      <div className="frame">
        <button
          type="button"
          className="plain turn"
          aria-label={say("studio.previous")}
          disabled={!before}
          onKeyDown={keys}
          onClick={() => {
            if (before) show(before);
          }}
        >
          ‹
        </button>
        <img src={address} width={picture.width} height={picture.height} alt={describe(name, picture, say)} />
        <button
          type="button"
          className="plain turn"
          aria-label={say("studio.next")}
          disabled={!after}
          onKeyDown={keys}
          onClick={() => {
            if (after) show(after);
          }}
        >
          ›
        </button>
      </div>
      <p className="caption" tabIndex={0}>
        {name}
      </p>
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
      <Details job={job} picture={picture} />
    </div>
  );
}

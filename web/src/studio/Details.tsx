import type { Job, JobPicture, PicturesJob } from "../api/jobs";
import { useLanguage, type Say } from "../language/say";
import { bytes, moment, seconds } from "../parts/format";

/** So many letters have a line of their own, or they would hold all others beside them apart. */
const LONG = 80;

/** Everything that is known of a picture. */
export function Details({ job, picture }: { job: Job; picture: JobPicture }) {
  const { say, language } = useLanguage();
  const rows = [...asked(job, picture, say), ...made(job, picture, say, language)];
  return (
    <dl className="details" aria-label={say("studio.details")}>
      {rows.map(([name, value]) => (
        <div key={name} className={value.length > LONG ? "long" : undefined}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

type Row = readonly [string, string];

function asked(job: Job, picture: JobPicture, say: Say): Row[] {
  // What a workflow asked for is its graph.
  const request: PicturesJob["request"] = job.kind === "workflow" ? {} : job.request;
  const rows: (readonly [string, unknown])[] = [
    [say("studio.prompt"), request.prompt],
    [say("studio.negative"), request.negative_prompt],
    [say("studio.model"), job.model],
    [say("studio.preset"), job.preset],
    [say("studio.loras"), request.loras?.map((lora) => `${lora.name} × ${lora.strength}`).join(", ")],
    [say("studio.seed"), picture.seed],
    [say("studio.steps"), request.steps],
    [say("studio.cfg"), request.cfg],
    [say("studio.sampler"), request.sampler],
    [say("studio.schedule"), request.schedule],
    [say("studio.eta"), request.eta],
    [say("studio.clip_skip"), request.clip_skip === 0 ? null : request.clip_skip],
    [say("studio.vae"), request.vae],
    [say("studio.strength"), request.image ? request.strength : null],
    [say("studio.detail.image"), request.image?.sha256.slice(0, 12)],
    [say("studio.detail.mask"), request.mask?.sha256.slice(0, 12)],
  ];
  return rows.filter(([, value]) => value !== null && value !== undefined && value !== "").map(asText);
}

function asText([name, value]: readonly [string, unknown]): Row {
  return [name, typeof value === "string" ? value : String(value)];
}

function made(job: Job, picture: JobPicture, say: Say, language: string): Row[] {
  const { created_at, started_at, ended_at } = job;
  return [
    [say("studio.detail.size"), `${picture.width} × ${picture.height}`],
    [say("studio.detail.file"), `${bytes(picture.bytes)}, sha256 ${picture.sha256.slice(0, 12)}`],
    [say("studio.detail.created"), moment(created_at, language)],
    [say("studio.detail.waited"), seconds(started_at === null ? null : started_at - created_at)],
    [
      say("studio.detail.took"),
      seconds(started_at === null || ended_at === null ? null : ended_at - started_at),
    ],
    [say("studio.detail.client"), job.client],
    [say("studio.detail.job"), job.id],
  ];
}

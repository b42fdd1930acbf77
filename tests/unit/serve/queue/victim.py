"""A server's queue at work, in a process that is there to be killed.

Says each thing on a line of its own once it has been promised: `accepted ID` or `done ID`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from calotype.serve.queue.limits import QueueLimits
from calotype.serve.queue.queue import GeneratedImage, JobQueue
from calotype.serve.queue.repository.enqueue import NewJob


def say(word: str, job_id: str) -> None:
    sys.stdout.write(f"{word} {job_id}\n")
    sys.stdout.flush()


async def submitting(queue: JobQueue, client: str) -> None:
    while True:
        job = await queue.submit(NewJob(client=client, model="emoji", request={"prompt": "p", "steps": 1}))
        say("accepted", job.id)


async def working(queue: JobQueue) -> None:
    while True:
        for job in await queue.claim(2):
            await queue.finish(job.id, [GeneratedImage(job.id.encode() * 1000, 8, 8, 0)])
            say("done", job.id)
        await asyncio.sleep(0)


async def main(folder: Path) -> None:
    # Killed far more often than a job may be lost.
    queue = JobQueue(folder, QueueLimits(max_losses=100, max_queued=100_000, max_queued_per_client=100_000))
    await asyncio.gather(submitting(queue, "ann"), submitting(queue, "bob"), working(queue))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))

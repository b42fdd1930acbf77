"""A deployment at work: jobs from the queue to workers, their news back, and what interfaces may ask.

Reading order: `workers`, `pulse`, `seat`, `watching`, `running`, `handing_out`, `hearing`, `dispatcher`,
`admission`, `deployment`.

- A `WorkerSlot` outlives its worker: a worker that dies is started again, later each time, and no more after
  several in a row have died without doing anything. Its jobs go back to the queue.
- A job that was lost twice runs by itself, so that one that kills workers fails alone.
- Draining: nothing new is accepted, running jobs have a stated time to end, the others stop at their next
  step; they and those that wait are there at the next start.
"""

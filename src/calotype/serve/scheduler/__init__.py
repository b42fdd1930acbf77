"""Scheduling: jobs from the queue to workers, worker events back, and the Service that interfaces call.

Reading order: `worker_protocol`, `heartbeat`, `worker_slot`, `job_subscriptions`, `running_jobs`, `dispatch`,
`worker_events`, `scheduler`, `admission`, `deployment`.

- A `WorkerSlot` outlives its worker process: it restarts a dead worker with growing pauses, and gives up
  after several workers in a row have died without doing any work. A dead worker's jobs go back to the queue.
- A job that was lost twice runs alone on a worker, so that a job that kills workers fails without others.
- Draining: the deployment accepts no new jobs and running jobs get a fixed time to end. The others stop at
  their next step; they and the queued jobs continue at the next start.
"""

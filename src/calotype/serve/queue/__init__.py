"""The durable queue: jobs in SQLite until they have ended, and afterwards up to the retention limits.

Reading order: `migrations`, `open_database`, `repository/rows`, `repository/record_sizes`,
`repository/enqueue`, `repository/reorder`, `fair_share`, `repository/uploads`, `repository/complete`,
`repository/history`, `blob_store`, `database`, `store`, `queue`.

Invariants:

- A job is accepted once its row is on disk, and enters a final state once, by one conditional UPDATE.
- Image files are complete on disk before the row says `done`. A crash may leave files that no row names.
- Order is decided by priority, then by turns between clients, then by acceptance, never by the wall clock.
- Deadlines use a monotonic clock while the server runs. After a restart only the wall clock is left: the
  remaining time is never more than the job was given, whatever that clock says.
- Retention by size takes nothing from a client that holds no more than an equal share of the limit.
- Retention by age uses the wall clock; a jump can make it early or late, and has no other effect.
"""

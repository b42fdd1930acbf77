"""Accepted jobs, kept in SQLite until they have ended and as long after that as the deployment wants.

Reading order: `schema`, `opening`, `rows`, `records`, `entering`, `moving`, `fair_share`, `uploads`,
`ending`, `history`, `files`, `database`, `store`, `workflow_pictures`, `queue`.

Rules that hold whatever happens:

- A job is accepted once its row is on disk, and enters a final state once, by one conditional UPDATE.
- Pictures are whole files on disk before the row says `done`. Files that no row knows are strays of a crash.
- What goes first is decided by priority, then by turns between clients, then by the order of acceptance, and
  never by the time of day.
- A deadline is counted by a clock that cannot jump for as long as the server runs. Over a restart the time of
  day is all there is: what is left is never more than was asked for, whatever that clock says.
- Retention by size takes nothing from a client that holds no more than an equal share of the limit.
- Retention by age goes by the time of day; a clock that jumps can make it early or late, and nothing else.
"""

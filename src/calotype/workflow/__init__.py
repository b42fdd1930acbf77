"""Node graphs: the node API, validation, execution, caching, conversion and, in `nodes/`, the built-in nodes.

Importing these modules does not load torch: a server describes and validates graphs in a process without it.
"""

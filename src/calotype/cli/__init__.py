"""The `calotype` command: one file per verb. Everything heavy is imported inside the verb that needs it."""

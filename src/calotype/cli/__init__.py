"""The `calotype` command: one file per subcommand, which imports heavy modules only when it runs."""

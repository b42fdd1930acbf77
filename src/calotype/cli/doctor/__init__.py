"""`calotype doctor`: collects facts about the machine and derives findings for the user."""

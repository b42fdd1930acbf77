"""`calotype doctor`: facts about a machine, and findings that say what they mean for the user."""

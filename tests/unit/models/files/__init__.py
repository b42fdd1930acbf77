"""Weight files: every bad one refused by name and rule, every good one equal to what others read."""

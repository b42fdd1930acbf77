"""What is asked and what is recorded: frozen, typed, torch-free."""

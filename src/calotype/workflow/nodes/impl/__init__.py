"""The work behind the nodes, with torch. Values between nodes lie in main memory, whatever does the work."""

"""Specifications and records: frozen, typed pydantic models without torch."""

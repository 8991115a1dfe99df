"""The version of this client, and that of the API which it asks for."""
VERSION = "0.1.0"
API_VERSION = "2026-10-21"

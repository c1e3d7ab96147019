"""Wire formats: pure functions between bytes and payloads, encode and decode side by side."""
